"""An export is the origin of its import again, is refused for all that differs, and takes the tokenizer along."""

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from command_line import CommandLine, listing, mistake
from safetensors.numpy import load_file
from safetensors.torch import load_file as load_tensors
from small_specs import small_text
from tiny_engine import train_tokenizer

from tests.imports.fairseq_files import SIZE, write_fairseq
from tests.imports.foreign import FAMILIES, GPT2, LLAMA, ROUNDED, write_foreign
from tests.imports.test_tokenizers import SENTENCES, TEXTS, train_piece_model, write_byte_pairs, write_marian
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.pipeline import begin, run_passes
from xformc.compiler.spec import load_spec
from xformc.compiler.weight_files import load_weights
from xformc.imports.family import find_family
from xformc.runtime.text.tokenizer import open_vocabulary
from xformc.trainer.run_files import find_run_files
from xformc.trainer.tensors import write_tensors


def done(xformc: CommandLine, *arguments: str | Path) -> str:
    result = xformc(*arguments)
    assert result.code == 0, result.err
    return result.out


def write_run(folder: Path, text: str) -> Path:
    """A run with random weights."""
    folder.mkdir(parents=True)
    size = train_tokenizer(folder / "tokenizer.model")
    (folder / "spec.yaml").write_text(re.sub("vocabulary: [0-9]+", f"vocabulary: {size}", text))
    arrays = TorchModule(load_spec(folder / "spec.yaml").graph(), seed=1).arrays()
    write_tensors(folder / "weights.safetensors", {name: torch.as_tensor(one) for name, one in arrays.items()}, {})
    return folder


@pytest.mark.parametrize("name", FAMILIES)
def test_an_export_of_an_import_is_its_origin(xformc: CommandLine, tmp_path: Path, name: str) -> None:
    write_foreign(tmp_path / "model", FAMILIES[name])
    done(xformc, "import", tmp_path / "model", "-o", tmp_path / "run")
    out = done(xformc, "export", "hf", tmp_path / "run", "-o", tmp_path / "back")
    assert out.startswith(f"{tmp_path / 'back'}: a model of the family {name}, ")
    before, after = (load_file(tmp_path / folder / "model.safetensors") for folder in ("model", "back"))
    found = {key.removeprefix(find_family(name).prefix): array for key, array in after.items()}
    assert found.keys() == before.keys()
    for key, array in before.items():  # gains that are stored as their difference from 1 are rounded
        own = found[key].ravel()[: array.size]  # without the token types that no text has
        np.testing.assert_allclose(own, array.ravel(), rtol=0, atol=1e-6 if name.startswith(ROUNDED) else 0)
    done(xformc, "import", tmp_path / "back", "-o", tmp_path / "again")
    one, two = (load_file(tmp_path / folder / "weights.safetensors") for folder in ("run", "again"))
    assert all(np.array_equal(array, two[key]) for key, array in one.items()) and one.keys() == two.keys()
    first, second = (load_spec(tmp_path / folder / "spec.yaml") for folder in ("run", "again"))
    assert first.graph().nodes == second.graph().nodes
    assert (first.decode, first.inputs) == (second.decode, second.inputs)


CONFIG, GENERATION = "config.json", "generation_config.json"


def written(folder: Path, name: str) -> dict[str, Any]:
    return json.loads((folder / name).read_text())


def test_several_end_tokens_and_bans_come_along(xformc: CommandLine, tmp_path: Path) -> None:
    bans = {"suppress_tokens": [5, 6], "repetition_penalty": 1.5, "no_repeat_ngram_size": 2}
    write_foreign(tmp_path / "model", {**LLAMA, "eos_token_id": [5, 7, 9]})
    (tmp_path / "model" / GENERATION).write_text(json.dumps({**bans, "max_new_tokens": 9}))
    done(xformc, "import", tmp_path / "model", "-o", tmp_path / "run")
    done(xformc, "export", "hf", tmp_path / "run", "-o", tmp_path / "back")
    assert written(tmp_path / "back", CONFIG)["eos_token_id"] == [5, 7, 9]
    found = written(tmp_path / "back", GENERATION)
    assert found["eos_token_id"] == [5, 7, 9] and {**found, **bans, "max_new_tokens": 9} == found
    done(xformc, "import", tmp_path / "back", "-o", tmp_path / "again")
    one, two = (load_spec(tmp_path / name / "spec.yaml") for name in ("run", "again"))
    assert (one.inputs, one.decode) == (two.inputs, two.decode)


def test_what_is_not_written_of_a_search_is_named(xformc: CommandLine, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", small_text("gpt"))
    content = yaml.safe_load((run / "spec.yaml").read_text())
    content.setdefault("decode", {})["sample"] = {"temperature": 0.5}
    (run / "spec.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    assert "sampling there has another temperature" in done(xformc, "export", "hf", run, "-o", tmp_path / "model")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "labels"), [("multi_label_classification", 3), ("regression", 2)])
def test_labels_are_of_the_kind_that_the_config_says(
    xformc: CommandLine, tmp_path: Path, kind: str, labels: int
) -> None:
    names = {str(index): f"l{index}" for index in range(labels)}
    settings = {"architectures": ["BertForSequenceClassification"], "problem_type": kind, "id2label": names}
    write_foreign(tmp_path / "model", {**FAMILIES["bert"], **settings})
    done(xformc, "import", tmp_path / "model", "-o", tmp_path / "run")
    (result,) = load_spec(tmp_path / "run" / "spec.yaml").results
    if kind == "regression":
        assert result.kind == "numbers"
        assert "results: numbers here, labels in" in mistake(
            xformc("export", "hf", tmp_path / "run", "-o", tmp_path / "back", "--family", "bert")
        )
        return
    assert result.settings["several"] is True
    done(xformc, "export", "hf", tmp_path / "run", "-o", tmp_path / "back")
    assert written(tmp_path / "back", CONFIG)["problem_type"] == kind


def test_vectors_that_are_normalized_and_not_pooled_are_refused(xformc: CommandLine, tmp_path: Path) -> None:
    write_foreign(tmp_path / "model", FAMILIES["distilbert"])
    done(xformc, "import", tmp_path / "model", "-o", tmp_path / "run")
    spec = tmp_path / "run" / "spec.yaml"
    content = yaml.safe_load(spec.read_text())
    content["results"]["states"]["normalize"] = True
    spec.write_text(yaml.safe_dump(content, sort_keys=False))
    found = mistake(xformc("export", "hf", tmp_path / "run", "-o", tmp_path / "back", "--family", "distilbert"))
    assert "normalized vectors of each position cannot be said" in found and not (tmp_path / "back").exists()


def test_null_stays_null(xformc: CommandLine, tmp_path: Path) -> None:
    """A config with `sliding_window: null` is another model than one without this key."""
    write_foreign(tmp_path / "model", {**FAMILIES["mistral"], "sliding_window": None})
    done(xformc, "import", tmp_path / "model", "-o", tmp_path / "run")
    done(xformc, "export", "hf", tmp_path / "run", "-o", tmp_path / "back", "--family", "mistral")
    assert written(tmp_path / "back", CONFIG)["sliding_window"] is None


def test_a_list_of_layers_has_an_item_for_each(xformc: CommandLine, tmp_path: Path) -> None:
    more = {"sliding_window": None, "layer_types": ["full_attention"] * 4}
    write_foreign(tmp_path / "model", {**FAMILIES["exaone4"], **more})
    done(xformc, "import", tmp_path / "model", "-o", tmp_path / "run")
    done(xformc, "export", "hf", tmp_path / "run", "-o", tmp_path / "back")
    config = written(tmp_path / "back", CONFIG)
    assert {**config, **more} == config
    assert config["rope_parameters"].keys() == {"rope_theta", "rope_type"}  # none that are null


@pytest.mark.filterwarnings("ignore")
def test_a_tokenizer_without_a_template_gets_one(xformc: CommandLine, tmp_path: Path) -> None:
    """It may lack what transformers needs, too, as those made from fairseq's dictionaries do."""
    transformers: Any = pytest.importorskip("transformers")
    write_fairseq(tmp_path / "model")
    done(xformc, "import", tmp_path / "model", "-o", tmp_path / "run")
    done(xformc, "export", "hf", tmp_path / "run", "-o", tmp_path / "back")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    special = load_spec(tmp_path / "run" / "spec.yaml").inputs["source"].special
    ours = open_vocabulary(tmp_path / "run" / "tokenizer.json", SIZE, special)
    for text in ("low lower", "new the", ""):
        assert theirs(text).input_ids == ours.surround(ours.encode(text))


@pytest.mark.parametrize(("licence", "line"), [("mit", "mit"), ("no", '"no"'), ("1.0", '"1.0"')])
def test_a_licence_is_text(xformc: CommandLine, tmp_path: Path, licence: str, line: str) -> None:
    write_foreign(tmp_path / "model", GPT2)
    done(xformc, "import", tmp_path / "model", "-o", tmp_path / "run")
    done(xformc, "export", "hf", tmp_path / "run", "-o", tmp_path / "back", "--licence", licence)
    assert f"\nlicense: {line}\n" in (tmp_path / "back" / "README.md").read_text()


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_weights_are_stored_as_asked(xformc: CommandLine, tmp_path: Path, kind: str) -> None:
    write_foreign(tmp_path / "model", GPT2)
    done(xformc, "import", tmp_path / "model", "-o", tmp_path / "run")
    options = ("--precision", kind, "--licence", "mit")
    if find_spec("transformers") is not None:
        options = (*options, "--replay")
    done(xformc, "export", "hf", tmp_path / "run", "-o", tmp_path / "back", *options)
    card = (tmp_path / "back" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\nlicense: mit\npipeline_tag: text-generation\n")
    assert "| family | gpt2 |" in card and ("None is recorded." in card) == ("--replay" not in options)
    assert json.loads((tmp_path / "back" / "config.json").read_text())["dtype"] == kind
    before, after = (load_tensors(tmp_path / name / "model.safetensors") for name in ("model", "back"))
    assert all(torch.equal(after[f"transformer.{name}"], one.to(getattr(torch, kind))) for name, one in before.items())


@pytest.mark.filterwarnings("ignore")
def test_a_trained_model_finds_its_family(xformc: CommandLine, tmp_path: Path) -> None:
    transformers: Any = pytest.importorskip("transformers")
    run = write_run(tmp_path / "run", small_text("gpt"))
    out = done(xformc, "export", "hf", run, "-o", tmp_path / "model", "--replay")
    assert "a model of the family gpt2" in out and "largest difference of logits" in out
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    ids = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")("one").input_ids
    assert ids[0] == 2 and 1 not in ids
    assert (config["activation_function"], config["bos_token_id"], config["n_layer"]) == ("gelu", 2, 2)


@pytest.mark.processor
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "family"), [("gpt", "gpt2"), ("llama", "llama")])
def test_a_trained_language_model_comes_back(xformc: CommandLine, tmp_path: Path, name: str, family: str) -> None:
    """With the begin token and the padding of its tokenizer, and with rotary pairs as the family has them."""
    (tmp_path / "spec.yaml").write_text(small_text(name, layers=1))
    (tmp_path / "data").mkdir()
    for file in ("train.txt", "valid.txt"):
        (tmp_path / "data" / file).write_text("".join(f"{text}\n" for text in SENTENCES[:4]))
    recipe = ["steps=20", "batch_tokens=200", "precision=float32", "schedule={kind: constant, peak: 0.01}"]
    options = [part for one in recipe for part in ("--set", f"train.{one}")]
    place = ("--data", tmp_path / "data", "-o", tmp_path / "run")
    done(xformc, "train", tmp_path / "spec.yaml", *place, "--set", "sizes.vocabulary=50", *options)
    options = [] if find_spec("transformers") is None else ["--replay"]
    out = done(xformc, "export", "hf", tmp_path / "run", "-o", tmp_path / "model", *options)
    assert f"a model of the family {family}," in out
    done(xformc, "import", tmp_path / "model", "-o", tmp_path / "again")
    one, two = (load_spec(tmp_path / run / "spec.yaml") for run in ("run", "again"))
    assert one.inputs == two.inputs
    tokens = torch.as_tensor([[2, 9, 4, 30, 5, 7, 6, 12]])
    logits, texts = [], []
    for run, spec in (("run", one), ("again", two)):
        module = TorchModule(run_passes(begin(spec), without=("loss",)).graph).eval()
        module.load_arrays(load_weights(tmp_path / run, spec.graph()))
        with torch.inference_mode():
            logits.append(module(tokens))
        done(xformc, "build", tmp_path / run, "-o", tmp_path / f"{run}-engine", "--target", "portable")
        options = ("--temperature", "0", "--max-new-tokens", "12")
        prompts = "".join(f"{line}\n" for line in ("", "the quick", "ein Haus"))
        result = xformc("generate", tmp_path / f"{run}-engine", *options, stdin=prompts)
        texts.append(result.out)
    torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=1e-5)
    assert texts[0] == texts[1] and len(set(texts[0].split())) > 3


def test_an_engine_is_exported_as_its_run(xformc: CommandLine, tmp_path: Path) -> None:
    write_foreign(tmp_path / "model", FAMILIES["qwen2"])  # a Llama with biases, which the first table can say, too
    done(xformc, "import", tmp_path / "model", "-o", tmp_path / "run")
    for folder, precision in (("engine", "float32"), ("small", "int8")):
        place = ("-o", tmp_path / folder, "--target", "portable", "--precision", precision)
        done(xformc, "build", tmp_path / "run", *place)
    done(xformc, "export", "hf", tmp_path / "engine", "-o", tmp_path / "back")
    assert json.loads((tmp_path / "back" / "config.json").read_text())["model_type"] == "qwen2"
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("model", "back"))
    outside = {"lm_head.weight": "lm_head.weight"}
    assert all(np.array_equal(after[outside.get(name, f"model.{name}")], one) for name, one in before.items())
    found = mistake(xformc("export", "hf", tmp_path / "small", "-o", tmp_path / "none"))
    assert "the engine's weights are rounded to int8\nhint: export the run that it was built from" in found


def test_everything_that_a_family_cannot_say_is_named(xformc: CommandLine, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", small_text("gpt"))
    base = write_run(tmp_path / "base", small_text("transformer_base"))
    before = listing(tmp_path)
    found = mistake(xformc("export", "hf", run, "-o", tmp_path / "model", "--family", "bloom"))
    for line in (
        "choices.positions: learned here, alibi in bloom",
        "sizes.max_positions: ",
        "model.decoder.do: differs",
    ):
        assert f"\n  {line}" in found
    found = mistake(xformc("export", "hf", base, "-o", tmp_path / "model"))
    assert "no family computes what this model does; there are albert, " in found
    found = mistake(xformc("export", "hf", base, "-o", tmp_path / "model", "--family", "marian"))
    for line in (
        "sizes.decoder_layers: absent here, needed by marian",
        "defaults.sinusoid.halves: False here, True in marian",
        "model.decoder.do: differs",
    ):
        assert f"\n  {line}" in found
    assert "must be a number" not in found and "defaults.sinusoid.base" not in found
    found = mistake(xformc("export", "hf", run, "-o", tmp_path / "model", "--family", "llama"))
    for line in ("sizes.groups: absent here, needed by llama", "choices.positions: learned here, rotary in llama"):
        assert f"\n  {line}" in found
    assert "attention_factor" not in found and "sizes.d_k" not in found
    assert listing(tmp_path) == before


def test_a_t5_is_trained_as_its_family_has_it(xformc: CommandLine, tmp_path: Path) -> None:
    """By what the page says that the shipped spec needs."""
    page = (Path(__file__).parents[2] / "docs" / "import.md").read_text(encoding="utf-8")
    (more,) = re.findall(r"    extends: t5\n(.*?)\n\n", page, re.DOTALL)
    sizes = "sizes: {layers: 2, d_model: 16, d_ff: 24, heads: 2, vocabulary: 60, buckets: 8, max_distance: 12}"
    run = write_run(tmp_path / "run", "\n".join(["extends: t5", sizes, *(line.strip() for line in more.splitlines())]))
    assert "a model of the family t5," in done(xformc, "export", "hf", run, "-o", tmp_path / "model")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("hf", "gone"), "gone: no such file or folder"),
        (("hf", "."), "is neither a run nor an engine: it has no spec"),
        (("hf", ".", "--option", "beam_size=4", "--runtime"), "--option, --runtime: not an option of hf"),
        (("triton", ".", "--family", "llama"), "--family: not an option of triton"),
        (("coreml", "."), "'coreml' is not one of 'triton', 'hf', 'ct2', 'safetensors', 'onnx'"),
    ],
)
def test_a_wrong_export_is_a_mistake(
    xformc: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in mistake(xformc("export", *arguments, "-o", tmp_path / "model"))
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("file", ["tokenizer.model", "tokenizer.json", "vocab.json"])
def test_the_tokenizer_comes_along(xformc: CommandLine, tmp_path: Path, file: str) -> None:
    transformers: Any = pytest.importorskip("transformers")
    folder = tmp_path / "model"
    folder.mkdir()
    if file == "tokenizer.model":
        train_piece_model(folder / file, unk_id=0, bos_id=1, eos_id=2, pad_id=-1)
        write_foreign(folder, {**LLAMA, "vocab_size": 300})
    elif file == "tokenizer.json":
        write_byte_pairs(folder / file)
        write_foreign(folder, {**GPT2, "vocab_size": 300, "eos_token_id": 0})
    else:
        ids = write_marian(folder)
        write_foreign(folder, {**FAMILIES["marian"], "vocab_size": len(ids), "pad_token_id": ids["<pad>"]})
    done(xformc, "import", folder, "-o", tmp_path / "run")
    out = done(xformc, "export", "hf", tmp_path / "run", "-o", tmp_path / "back")
    assert file in out
    done(xformc, "import", tmp_path / "back", "-o", tmp_path / "again")
    (name, item), *_ = load_spec(tmp_path / "run" / "spec.yaml").inputs.items()
    path = (find_run_files(tmp_path / "run", load_spec(tmp_path / "run" / "spec.yaml")).tokenizers or {})[name]
    assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()
    ours, theirs = (
        open_vocabulary(path, item.vocabulary, item.special),
        transformers.AutoTokenizer.from_pretrained(tmp_path / "back"),
    )
    around = item.special.begun if file == "tokenizer.model" else ()
    for text in TEXTS:
        wanted = ours.surround(ours.encode(text)) if file == "vocab.json" else [*around, *ours.encode(text)]
        assert theirs(text)["input_ids"] == wanted, text
