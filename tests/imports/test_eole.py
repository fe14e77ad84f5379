"""Folders of Eole become runs that compute what Eole 0.6.4 has computed with them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import CommandLine, mistake
from safetensors.torch import load_file, save_file

from tests.exports.test_hugging_face import done
from tests.imports.eole_files import (
    GIVEN,
    MOST,
    SOURCE,
    TEXTS,
    VARIANTS,
    eole_search,
    is_translation,
    recorded,
    write_eole,
)
from tests.imports.test_fairseq import module
from tests.imports.test_import import VALUES
from tests.imports.test_tokenizers import train_piece_model
from xformc.compiler.spec import load_spec
from xformc.runtime.engine import load
from xformc.runtime.text.tokenizer import open_vocabulary


@pytest.mark.parametrize("name", VARIANTS)
def test_an_import_computes_the_logits_of_eole(xformc: CommandLine, tmp_path: Path, name: str) -> None:
    write_eole(tmp_path / "model", name, shards=2)
    assert "a run of the family eole, " in done(xformc, "import", tmp_path / "model", "-o", tmp_path / "run")
    spec = load_spec(tmp_path / "run" / "spec.yaml")
    source, target = (torch.tensor(ids) for ids in GIVEN)
    inputs = (source, target) if is_translation(name) else (target,)
    run = module(tmp_path / "run", spec)
    with torch.no_grad():
        found = run(*inputs)
        torch.testing.assert_close(found, torch.tensor(recorded(name)["logits"]), rtol=0, atol=3e-5)
        if name != "buckets":  # of which Eole's cached decoding is not its own forward pass
            assert [searched(run, name, text, 5) for text in TEXTS] == recorded(name)["beam5"]


def searched(run: Any, name: str, text: str, beam: int) -> list[int]:
    """The tokens of an import by Eole's rules of search."""
    ids = [SOURCE.index(word) for word in text.split()]
    if is_translation(name):
        source = torch.tensor([ids]).expand(beam, -1)
        limit = min(MOST, 2 * len(ids) + 5)
        return eole_search(lambda texts: run(source, torch.tensor([[2, *one] for one in texts]))[:, -1], beam, limit)
    return eole_search(lambda texts: run(torch.tensor([[2, *ids, *one] for one in texts]))[:, -1], beam, MOST)


@pytest.mark.processor
@pytest.mark.parametrize("name", ["rotary", "llama"])
def test_an_import_writes_as_eole_does(xformc: CommandLine, tmp_path: Path, name: str) -> None:
    write_eole(tmp_path / "model", name)
    done(xformc, "import", tmp_path / "model", "-o", tmp_path / "run")
    done(xformc, "build", tmp_path / "run", "-o", tmp_path / "engine", "--target", "portable")
    engine = load(tmp_path / "engine", threads=1)
    if is_translation(name):
        found = [list(row[0].tokens) for row in engine.translate(TEXTS, beam_size=1)]
    else:
        found = [list(one.tokens) for one in engine.generate(TEXTS, beam_size=1, max_new_tokens=MOST)]
    assert found == recorded(name)["beam1"]


def test_the_special_tokens_of_a_translation_model(xformc: CommandLine, tmp_path: Path) -> None:
    write_eole(tmp_path / "model", "plain")
    done(xformc, "import", tmp_path / "model", "-o", tmp_path / "run")
    spec = load_spec(tmp_path / "run" / "spec.yaml")
    source, target = (spec.inputs[side].special for side in ("source", "target"))
    assert not source.ends and target.ends
    assert (target.pad, target.unknown, target.begin, target.end) == (1, 0, 2, (3,))
    assert (spec.decode.beam_size, spec.decode.max_length.factor, spec.decode.max_length.offset) == (5, 2, 5)


def test_a_language_model_may_lack_special_tokens_and_have_several_ends(xformc: CommandLine, tmp_path: Path) -> None:
    write_eole(tmp_path / "model", "llama", inference={"optional_eos": ["d", "?"]})
    changed = {"specials": {"eos_token": "h"}, "decoder_start_token": ""}
    tokens = [*"ABCD", *SOURCE[4:]]
    (tmp_path / "model" / "vocab.json").write_text(json.dumps({"src": tokens, "tgt": tokens, **changed}))
    assert "without a tokenizer" in done(xformc, "import", tmp_path / "model", "-o", tmp_path / "run")
    spec = load_spec(tmp_path / "run" / "spec.yaml")
    special = spec.inputs["text"].special
    assert (special.pad, special.unknown, special.begin) == (None, None, None)
    assert special.end == (tokens.index("h"), tokens.index("d"))
    assert not (tmp_path / "run" / "tokenizer.json").exists()


def test_pieces_have_the_ids_of_the_vocabulary(xformc: CommandLine, tmp_path: Path) -> None:
    folder = write_eole(tmp_path / "model", "plain")
    vocabulary = json.loads((folder / "vocab.json").read_text())
    vocabulary["src"] = tokens = [*SOURCE[:4], *"▁theodg", "x"]
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    train_piece_model(folder / "sentencepiece.model", vocab_size=70)
    assert "of whose pieces have no id" in done(xformc, "import", folder, "-o", tmp_path / "run")
    item = load_spec(tmp_path / "run" / "spec.yaml").inputs["source"]
    ours = open_vocabulary(tmp_path / "run" / "source.model", item.vocabulary, item.special)
    assert ours.surround(ours.encode("the dog")) == [tokens.index(one) for one in "▁the▁dog"]


def test_everything_that_the_table_lacks_is_named(xformc: CommandLine, tmp_path: Path) -> None:
    changed: dict[str, Any] = {"num_experts": 4, "ffn_layernorm": True, "generator_function": "sparsemax"}
    changed |= {"parallel_residual": True, "sliding_window": 9, "colour": "red", "add_estimator": True}
    write_eole(tmp_path / "model", "plain", **changed)
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config["model"]["encoder"] |= {"heads": 2, "encoder_layer_style": "postnorm", "norm_eps": 1e-6}
    config["model"]["embeddings"] |= {
        "position_encoding_type": "Relative",
        "src_word_vec_size": 16,
        "word_vec_size": -1,
    }
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    found = mistake(xformc("import", tmp_path / "model", "-o", tmp_path / "run"))
    for line in (
        "num_experts: 4 must be '0'",
        "ffn_layernorm: true must be 'false'",
        "generator_function: sparsemax must be 'softmax'",
        "parallel_residual: true must be 'false', 'shared' or 'apart'",
        "sliding_window: 9 must be '0'",
        'colour: "red" is not in the table of eole',
        "add_estimator: true must be 'false'",
        "encoder.heads: 2 differs from heads",
        "encoder.norm_eps: 1e-06 differs from norm_eps",
        "encoder.encoder_layer_style: postnorm must be 'standard'",
        "embeddings.src_word_vec_size: 16 differs from hidden_size",
        "embeddings.position_encoding_type: Relative must be 'none', 'SinusoidalInterleaved', ",
    ):
        assert f"\n  {line}" in found, found
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("plain", {"architecture": "rnn"}, "architecture: rnn must be 'transformer', 'transformer_lm' or 'custom'"),
        ("plain", {"training": {"lora_layers": ["w"]}}, "training.lora_layers.0: imported are whole weights in floats"),
        ("plain", {"training": {"quant_layers": ["w"]}}, "training.quant_layers.0: imported are whole weights"),
        ("plain", {"encoder": {"encoder_type": "brnn"}}, "encoder.encoder_type: brnn must be 'transformer'"),
        ("plain", {"share_embeddings": True}, "wrong shape: src_emb.embeddings.weight"),
        ("llama", {"decoder": {"decoder_type": "rnn"}}, "decoder.decoder_type: rnn must be 'transformer'"),
        ("llama", {"layers": 3, "decoder": {"LM_type": "prefix"}}, "decoder.LM_type: prefix must be 'causal'"),
        (
            "llama",
            {"architecture": "custom", "decoder": None},
            "kind: encoder must be 'translation' or 'language_model'",
        ),
        ("neox", {"query_norm": True}, "head_norms: of queries or keys alone must be 'false' or 'rms'"),
        ("neox", {"query_norm": True, "key_norm": True}, "head_norms: standard norms must be 'false' or 'rms'"),
    ],
)
def test_other_models_are_refused_by_name(
    xformc: CommandLine, tmp_path: Path, name: str, changed: dict[str, Any], message: str
) -> None:
    write_eole(tmp_path / "model", name, **changed)
    found = mistake(xformc("import", tmp_path / "model", "-o", tmp_path / "run"))
    assert message in found
    assert not (tmp_path / "run").exists()


SAID = {"src": SOURCE, "tgt": SOURCE, "decoder_start_token": "<s>"}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("plain", "{", "vocab.json: not JSON"),
        ("plain", "[" * 100_000, "vocab.json: not JSON"),
        ("plain", {"src": 3, "tgt": SOURCE}, "must have lists of tokens, each once, under src and tgt"),
        ("plain", {"src": ["a", "a"], "tgt": SOURCE}, "must have lists of tokens, each once, under src and tgt"),
        ("plain", {**SAID, "tgt": SOURCE[::-1]}, "<blank>, <unk>, </s>, <s> must have one id, the same in both"),
        ("plain", {**SAID, "specials": {"pad_token": "<pad>"}}, "<pad> must have one id, the same in both"),
        ("plain", {**SAID, "tgt": [*SOURCE, "x"]}, "wrong shape: "),
        ("llama", {**SAID, "specials": {"eos_token": "<end>"}}, "<end> must be a token"),
        ("llama", {**SAID, "tgt": [*SOURCE, "x"]}, "src and tgt of a language model must have the same tokens"),
    ],
)
def test_a_vocabulary_that_does_not_fit_is_a_mistake(
    xformc: CommandLine, tmp_path: Path, name: str, content: object, message: str
) -> None:
    write_eole(tmp_path / "model", name)
    text = content if isinstance(content, str) else json.dumps(content)
    (tmp_path / "model" / "vocab.json").write_text(text)
    assert message in mistake(xformc("import", tmp_path / "model", "-o", tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_missing_files_and_weights_are_mistakes(xformc: CommandLine, tmp_path: Path) -> None:
    folder = write_eole(tmp_path / "model", "plain", shards=2)

    def refused() -> str:
        return mistake(xformc("import", folder, "-o", tmp_path / "run"))

    (folder / "model.01.safetensors").rename(folder / "kept")
    assert "missing: " in refused()
    whole = load_file(folder / "kept")
    save_file({**whole, "generator.bias": torch.zeros(15)}, folder / "model.07.safetensors")
    save_file({"generator.bias": torch.zeros(15)}, folder / "model.08.safetensors")
    assert "the weight generator.bias is there twice" in refused()
    (folder / "model.08.safetensors").write_bytes(b"\0" * 20)
    assert "model.08.safetensors: not a complete safetensors file" in refused()
    for file in folder.glob("model.*"):
        file.unlink()
    assert "has no model.00.safetensors" in refused()
    (folder / "vocab.json").unlink()
    write_eole(tmp_path / "other", "plain")
    (tmp_path / "other" / "vocab.json").unlink()
    folder = tmp_path / "other"
    assert "has no vocab.json" in refused()


@pytest.mark.parametrize("name", ["shared", "qwen3"])
def test_a_mutated_folder_ends_in_one_error_or_an_import(xformc: CommandLine, tmp_path: Path, name: str) -> None:
    folder, draw = write_eole(tmp_path / "model", name), np.random.default_rng(2)
    config, vocabulary = (json.loads((folder / file).read_text()) for file in ("config.json", "vocab.json"))
    files = {file: (folder / file).read_bytes() for file in ("config.json", "vocab.json", "model.00.safetensors")}

    def check(turn: str) -> None:
        result = xformc("import", folder, "-o", tmp_path / turn)
        assert (tmp_path / turn).is_dir() if result.code == 0 else mistake(result), turn
        assert (tmp_path / turn).exists() == (result.code == 0), turn

    sections = [config["model"], *(one for one in config["model"].values() if isinstance(one, dict))]
    for turn in range(24):
        holder = sections[int(draw.integers(len(sections)))] if turn % 4 else [config, vocabulary][turn // 4 % 2]
        key = str(draw.choice([*holder]))
        kept, holder[key] = holder[key], VALUES[int(draw.integers(len(VALUES)))]
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "vocab.json").write_text(json.dumps(vocabulary))
        check(f"value{turn}")
        holder[key] = kept
    for turn in range(12):
        for file, whole in files.items():
            (folder / file).write_bytes(whole)
        file = [*files][turn % 3]
        place, byte = int(draw.integers(min(len(files[file]), 2000))), int(draw.integers(256))
        changed = files[file][:place] + bytes([byte]) + files[file][place + 1 :]
        (folder / file).write_bytes(changed if turn < 9 else files[file][:place])
        check(f"byte{turn}")
    assert not list(tmp_path.glob(".*"))
