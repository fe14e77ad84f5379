"""Language models of CTranslate2 become runs that compute its logits, and go back; what is not supported is named."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import CommandLine, listing, mistake
from safetensors.numpy import load_file
from small_specs import small_text

from tests.exports.test_hugging_face import done, write_run
from tests.imports.ctranslate2_models import END, NAMES, Ours, Theirs, convert, difference, prompts, write_origin
from tests.imports.opennmt_files import VARIANTS, write_opennmt
from tests.imports.test_ctranslate2 import write_model
from tests.imports.test_tokenizers import train_piece_model
from xformc.compiler.spec import load_spec
from xformc.exports.ctranslate2 import export_ctranslate2
from xformc.exports.hugging_face import export_hugging_face
from xformc.format.interfaces import PROMPTS
from xformc.format.names import BEAMS
from xformc.imports.import_model import import_model
from xformc.runtime.engine import Engine, load
from xformc.runtime.generation.generate import Prompt, sample
from xformc.runtime.rows import pad
from xformc.runtime.searching.search import search
from xformc.runtime.text.tokenizer import open_vocabulary

BOUND = 1e-4
"""The largest difference of logits, as a part of their standard deviation."""

ALONE = ("opt, norms after", "gpt_neox, in turn", "gptj", "gpt_bigcode")
"""Models that are imported from CTranslate2 only."""

BOTH = ("gpt2", "opt", "gpt_neox", "bloom", "falcon, grouped", "llama", "llama, tied", "qwen2", "qwen3", "gemma")

pytestmark = pytest.mark.filterwarnings("ignore")


def assert_same(run: Path, folder: Path) -> None:
    """The logits are within the bound, and the most likely tokens are the same."""
    ours, theirs = Ours(run), Theirs(folder)
    assert difference(ours, theirs) <= BOUND
    for prompt in prompts(3):
        assert ours.greedy(prompt, 8) == theirs.greedy(prompt, 8)


@pytest.mark.parametrize("name", [*ALONE, *BOTH])
def test_an_import_computes_the_same_and_goes_back(tmp_path: Path, name: str) -> None:
    pytest.importorskip("ctranslate2")
    origin = write_origin(tmp_path / "origin", name)
    theirs = convert(origin, tmp_path / "theirs")
    import_model(theirs, tmp_path / "run")
    assert_same(tmp_path / "run", theirs)
    if name in BOTH:  # the table of another family, whose spec has other words for the same function
        import_model(origin, tmp_path / "family")
    export_ctranslate2(tmp_path / ("family" if name in BOTH else "run"), tmp_path / "back")
    assert_same(tmp_path / "run", tmp_path / "back")
    import_model(tmp_path / "back", tmp_path / "again")
    one, two = (load_file(tmp_path / folder / "weights.safetensors") for folder in ("run", "again"))
    assert one.keys() == two.keys()
    for path, array in one.items():  # the gains of Gemma are their difference from 1 there
        np.testing.assert_allclose(array, two[path], rtol=0, atol=1e-6 if name == "gemma" else 0)


def test_an_import_is_exported_as_its_first_family(tmp_path: Path) -> None:
    """The heads of Qwen 3 are rotated whole, which CTranslate2's file says by their size."""
    pytest.importorskip("ctranslate2")
    import_model(convert(write_origin(tmp_path / "origin", "qwen3"), tmp_path / "theirs"), tmp_path / "run")
    done = export_hugging_face(tmp_path / "run", tmp_path / "back", compare=True)
    assert done.family == "qwen3" and done.replay is not None and done.replay.passed


def test_a_phi_is_exported(tmp_path: Path) -> None:
    """CTranslate2 does not convert its current form."""
    pytest.importorskip("ctranslate2")
    import_model(write_origin(tmp_path / "origin", "phi"), tmp_path / "run")
    export_ctranslate2(tmp_path / "run", tmp_path / "back")
    assert_same(tmp_path / "run", tmp_path / "back")


@pytest.mark.parametrize("name", ["lm", "lm-alibi"])
def test_opennmt_by_way_of_ctranslate2_is_the_same_model(tmp_path: Path, name: str) -> None:
    converters: Any = pytest.importorskip("ctranslate2.converters")
    kinds = dict.fromkeys(("encoder_type", "decoder_type"), "transformer_lm")  # as the converter calls both
    path = write_opennmt(tmp_path / "model.pt", **{**VARIANTS[name], **kinds})
    converters.OpenNMTPyConverter(str(path), unsafe_deserialization=True).convert(str(tmp_path / "theirs"))
    for source, run in ((path, "first"), (tmp_path / "theirs", "second")):
        import_model(source, tmp_path / run)
    text, theirs = [[2, 5, 6, 9, 11]], Theirs(tmp_path / "theirs")
    first, second = (Ours(tmp_path / run).logits(text) for run in ("first", "second"))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(second, theirs.logits(text), rtol=0, atol=1e-4)


def test_scaled_rotary_positions_of_llama3_are_what_ctranslate2_computes(tmp_path: Path) -> None:
    """Its converter leaves out the factor, so that nothing is scaled; an export says it."""
    pytest.importorskip("ctranslate2")
    origin = write_origin(tmp_path / "origin", "llama, llama3")
    import_model(convert(origin, tmp_path / "theirs"), tmp_path / "plain")
    import_model(origin, tmp_path / "scaled")
    assert_same(tmp_path / "plain", tmp_path / "theirs")
    export_ctranslate2(tmp_path / "scaled", tmp_path / "back")
    assert_same(tmp_path / "scaled", tmp_path / "back")
    import_model(tmp_path / "back", tmp_path / "again")
    assert "scaling: llama3" in (tmp_path / "again" / "spec.yaml").read_text()
    assert difference(Ours(tmp_path / "plain"), Theirs(tmp_path / "back")) > 0.1


def test_a_window_is_that_of_prompts_within_it(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    theirs = convert(write_origin(tmp_path / "origin", "mistral"), tmp_path / "theirs")
    import_model(theirs, tmp_path / "run")
    assert {**load_spec(tmp_path / "run" / "spec.yaml").sizes}["window"] == 12
    ours, peer = Ours(tmp_path / "run"), Theirs(theirs)
    assert difference(ours, peer) <= BOUND
    for prompt in prompts(3, most=6):
        assert ours.greedy(prompt, 16) == peer.greedy(prompt, 16)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, and exports of it in several formats."""
    pytest.importorskip("ctranslate2")
    folder = tmp_path_factory.mktemp("llama")
    import_model(write_origin(folder / "origin", "llama"), folder / "run")
    for kind in ("int8", "int16", "float16", "bfloat16"):
        export_ctranslate2(folder / "run", folder / kind, kind)
    return folder


@pytest.mark.parametrize("kind", ["int16", "float16", "bfloat16"])
def test_weights_of_other_formats_are_the_numbers_that_they_stand_for(llama: Path, tmp_path: Path, kind: str) -> None:
    import_model(llama / kind, tmp_path / "run")
    assert difference(Ours(tmp_path / "run"), Theirs(llama / kind)) <= BOUND
    assert difference(Ours(llama / "run"), Theirs(llama / kind)) > BOUND


@pytest.mark.processor
def test_an_engine_of_an_int8_model_writes_the_same(xformc: CommandLine, llama: Path, tmp_path: Path) -> None:
    done(xformc, "import", llama / "int8", "-o", tmp_path / "run")
    done(xformc, "build", tmp_path / "run", "-o", tmp_path / "engine", "--target", "portable")
    engine, peer = load(tmp_path / "engine", threads=1), Theirs(llama / "int8")
    options = replace(engine.manifest.sampling, temperature=0.0, max_new_tokens=16)
    for prompt in prompts(8):
        found = sample(engine.session, [Prompt(prompt, 0)], options).tokens[0]
        assert [one for one in found.tolist() if one != END] == peer.greedy(prompt, 16)
    assert engine.tokenizer is not None and engine.tokenizer.encode_open("text", "t5 t9 other") == [5, 9, 0]
    assert_searches_alike(engine, peer)


def assert_searches_alike(engine: Engine, peer: Theirs) -> None:
    """The three best of a beam of three, with the search's own preset."""
    given, beams = prompts(4), engine.session.beside(BEAMS)
    assert beams is not None and engine.manifest.beams is not None
    options = replace(engine.manifest.beams, beam_size=3, n_best=3, max_length_offset=10)
    found = search(beams, {PROMPTS: pad(given, engine.manifest.inputs["text"].special.absent)}, options)
    for row, prompt in enumerate(given):
        (theirs,) = peer.generator.generate_batch(
            [[NAMES[one] for one in prompt]],
            beam_size=3,
            num_hypotheses=3,
            max_length=10,
            include_prompt_in_result=False,
        )
        ours = [[one for one in text if one != END] for text in found.texts()[row]]
        assert ours == theirs.sequences_ids


def test_a_model_of_ones_own_is_exported_with_its_tokenizer(xformc: CommandLine, tmp_path: Path) -> None:
    ctranslate2: Any = pytest.importorskip("ctranslate2")
    run = write_run(tmp_path / "run", small_text("gpt"))
    out = done(xformc, "export", "ct2", run, "-o", tmp_path / "peer", "--precision", "int8")
    assert "a model of CTranslate2, " in out
    assert json.loads((tmp_path / "peer" / "config.json").read_text())["bos_token"] == "<s>"
    done(xformc, "import", tmp_path / "peer", "-o", tmp_path / "again")
    items = [load_spec(folder / "spec.yaml").inputs["text"] for folder in (run, tmp_path / "again")]
    assert (items[0].special.begin, items[0].special.end) == (items[1].special.begin, items[1].special.end)
    vocabularies = [
        open_vocabulary(folder / "tokenizer.model", item.vocabulary, item.special)
        for folder, item in zip((run, tmp_path / "again"), items, strict=True)
    ]
    assert vocabularies[0].encode("the dog") == vocabularies[1].encode("the dog")
    generator = ctranslate2.Generator(str(tmp_path / "peer"), intra_threads=1)
    words = vocabularies[0].pieces([2, *vocabularies[0].encode("the dog")])
    assert generator.generate_batch([words], max_length=4)[0].sequences_ids


def test_what_ctranslate2_cannot_say_of_a_language_model_is_named(xformc: CommandLine, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    text = small_text("gpt").replace("positions: learned", "positions: learned\n  score: dot")
    run = write_run(tmp_path / "run", text.replace("activation: gelu", "activation: sigmoid"))
    before = listing(tmp_path)
    found = mistake(xformc("export", "ct2", run, "-o", tmp_path / "out"))
    assert "cannot be said as ctranslate2_decoder, which differs in:\n" in found
    for line in ("choices.score: dot here", "choices.activation: sigmoid here"):
        assert f"\n  {line}" in found
    assert listing(tmp_path) == before


TOKENS = ["<unk>", "<s>", "</s>", *"abcdefgh"]


def variables() -> dict[str, Any]:
    """A decoder of two layers: norms of mean squares, rotary positions, a gated network and grouped queries."""
    random, width, inner = np.random.default_rng(5), 8, 12
    found: dict[str, Any] = {
        "decoder/num_heads": np.int16(4),
        "decoder/pre_norm": np.int8(1),
        "decoder/activation": np.int8(2),
        "decoder/scale_embeddings": np.int8(0),
        "decoder/start_from_zero_embedding": np.int8(0),
        "decoder/alibi": np.int8(0),
        "decoder/scale_alibi": np.int8(0),
        "decoder/layer_norm/gamma": np.ones(width, np.float32),
        "decoder/embeddings/weight": random.normal(size=(len(TOKENS), width)).astype(np.float32),
    }
    for layer in ("decoder/layer_0", "decoder/layer_1"):
        shapes = {"self_attention/linear_0": (16, 8), "self_attention/linear_1": (8, 8), "ffn/linear_0": (inner, 8)}
        shapes |= {"ffn/linear_0_noact": (inner, 8), "ffn/linear_1": (8, inner)}
        for name, shape in shapes.items():
            found[f"{layer}/{name}/weight"] = random.normal(size=shape).astype(np.float32)
        for name in ("self_attention", "ffn"):
            found[f"{layer}/{name}/layer_norm/gamma"] = random.normal(size=width).astype(np.float32)
        attention = f"{layer}/self_attention"
        found |= {f"{attention}/num_heads_kv": np.int32(2), f"{attention}/rotary_dim": np.int32(0)}
        found |= {f"{attention}/rotary_interleave": np.int8(0), f"{attention}/rotary_base": np.float32(500)}
    return found


def write(folder: Path, found: Mapping[str, Any], **config: Any) -> Path:
    """The model's folder, as CTranslate2 writes it; the projection is the matrix of the embeddings."""
    write_model(folder, found, "TransformerDecoderSpec")
    (folder / "shared_vocabulary.json").unlink()
    usual = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "layer_norm_epsilon": 1e-6}
    (folder / "config.json").write_text(json.dumps({**usual, "multi_query_attention": True, **config}))
    (folder / "vocabulary.json").write_text(json.dumps(TOKENS))
    return folder


def test_special_tokens_are_those_that_are_there(xformc: CommandLine, tmp_path: Path) -> None:
    """Without a tokenizer, texts begin with the begin token, unless it is the end token."""
    folder, found = write(tmp_path / "model", variables()), []
    done(xformc, "import", folder, "-o", tmp_path / "run0")
    write(folder, variables(), bos_token="</s>", unk_token="")
    done(xformc, "import", folder, "-o", tmp_path / "run1")
    shutil.copy(write_tokenizer(tmp_path / "tokenizer.json"), folder)
    done(xformc, "import", folder, "-o", tmp_path / "run2")
    for place in range(3):
        special = load_spec(tmp_path / f"run{place}" / "spec.yaml").inputs["text"].special
        found.append((special.pad, special.unknown, special.begin, special.end))
    assert found == [(None, 0, 1, (2,)), (None, None, None, (2,)), (None, None, 5, (2,))]
    assert not (tmp_path / "run1" / "tokenizer.json").exists()


def write_tokenizer(path: Path) -> Path:
    """A tokenizer whose template begins with the token c."""
    piece = [{"SpecialToken": {"id": "c", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    tokens = {"c": {"id": "c", "ids": [5], "tokens": ["c"]}}
    template = {"type": "TemplateProcessing", "single": piece, "pair": piece, "special_tokens": tokens}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    words = {"type": "WordLevel", "vocab": {name: place for place, name in enumerate(TOKENS)}, "unk_token": "<unk>"}
    post = {"type": "Sequence", "processors": [level, template]}
    path.write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": words, "post_processor": post}))
    return path


def test_a_sentencepiece_model_gets_the_ids_of_the_vocabulary(xformc: CommandLine, tmp_path: Path) -> None:
    folder = write(tmp_path / "model", variables())
    train_piece_model(folder / "tokenizer.model", vocab_size=70)
    tokens = ["<unk>", "<s>", "</s>", *"▁theodgxy"[:8]]
    (folder / "vocabulary.json").write_text(json.dumps(tokens))
    done(xformc, "import", folder, "-o", tmp_path / "run")
    item = load_spec(tmp_path / "run" / "spec.yaml").inputs["text"]
    ours = open_vocabulary(tmp_path / "run" / "tokenizer.model", item.vocabulary, item.special)
    assert ours.encode("the dog") == [tokens.index(one) for one in "▁the▁dog"]


LAYER = "decoder/layer_1/self_attention"
WRONG: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    (
        {
            "decoder/activation": np.int8(4),
            "decoder/start_from_zero_embedding": np.int8(1),
            "decoder/final_logit_softcapping": np.float32(30),
            f"{LAYER}/queries_scale": np.float32(1),
            f"{LAYER}/rotary_base": np.float32(10),
        },
        {"quantization_type": 1},
        [
            "decoder.activation: 4 must be '0', '1', '2' or '3'",
            "decoder.start_from_zero_embedding: 1 must be '0'",
            "config.quantization_type: 1 must be '0'",
            'layer.self_attention.rotary_base must be a number, found "500, 10 by layer"',
            "decoder.final_logit_softcapping: 30.0 is not in the table",
            'layer.self_attention.queries_scale: "1 by layer" is not in the table',
        ],
    ),
    ({f"{LAYER}/rotary_dim": np.int32(4)}, {}, ['"0, 4 by layer"']),
    ({"decoder/alibi": np.int8(1)}, {}, ["positions: rotary and alibi must be 'learned', 'rotary' or 'alibi'"]),
    ({f"{LAYER}/relative_position_keys": np.ones((3, 2), np.float32)}, {}, ["positions: relative must be"]),
    ({"decoder/scale_embeddings": np.float32(3)}, {}, ["scale_embeddings is 3; imported are 1 and sqrt(d_model)"]),
    ({"decoder/layer_0/pre_feedforward_layer_norm/gamma": np.ones(8, np.float32)}, {}, ["norms before and after"]),
    ({"decoder/layer_0/ffn/linear_0/bias": np.ones(12, np.float32)}, {}, ["biases: gated network must be 'all'"]),
    ({"decoder/project_in/weight": np.ones((8, 8), np.float32)}, {}, ["left over: decoder/project_in/weight"]),
    ({"decoder/layer_0/ffn/linear_0/weight": np.ones(12, np.float32)}, {}, ["has no matrix decoder/layer_0/ffn/lin"]),
    ({f"{LAYER}/rotary_scaling_type": np.int8(1)}, {}, ["layer.self_attention.rotary_scaling_type"]),
    ({f"{LAYER}/num_heads_kv": np.int32(3)}, {}, ["layer.self_attention.num_heads_kv"]),
    ({}, {"eos_token": "stop"}, ["eos_token: stop must be a token"]),
]


@pytest.mark.parametrize("case", WRONG, ids=[messages[0][:30] for *_, messages in WRONG])
def test_what_is_not_supported_is_refused_by_name(
    xformc: CommandLine, tmp_path: Path, case: tuple[dict[str, Any], dict[str, Any], list[str]]
) -> None:
    change, config, messages = case
    folder = write(tmp_path / "model", {**variables(), **change}, **config)
    found = mistake(xformc("import", folder, "-o", tmp_path / "run"))
    assert not [message for message in messages if message not in found], found
    assert not (tmp_path / "run").exists()


def test_changed_files_are_refused_or_imported(xformc: CommandLine, tmp_path: Path) -> None:
    """Each number of the file in turn, the options and the vocabulary: no change ends otherwise than with a mistake."""
    random, whole, folder = np.random.default_rng(7), variables(), tmp_path / "model"
    numbers = [name for name, one in whole.items() if np.ndim(one) == 0]
    changes = [(name, value) for name in numbers for value in (0, -1, 3, 100)]
    for place in random.choice(len(changes), 16, replace=False):
        name, value = changes[place]
        write(folder, {**whole, name: np.asarray(value, np.asarray(whole[name]).dtype)})
        assert_refused_or_imported(xformc, folder, tmp_path / "run")
    for name in random.choice([name for name in whole if name not in numbers], 8, replace=False):
        write(folder, {**whole, name: whole[name][:-1]})
        assert mistake(xformc("import", folder, "-o", tmp_path / "run"))
    for key, value in [
        ("layer_norm_epsilon", -3.5),
        ("layer_norm_epsilon", 1e400),
        ("eos_token", []),
        ("bos_token", {}),
    ]:
        assert_refused_or_imported(xformc, write(folder, whole, **{key: value}), tmp_path / "run")
    write(folder, whole)
    for content in ('["a"', "{}", "[]", '["a", 3]', json.dumps([*TOKENS, "a"]), json.dumps(TOKENS[:-1])):
        (folder / "vocabulary.json").write_text(content)
        assert mistake(xformc("import", folder, "-o", tmp_path / "run"))
    (folder / "vocabulary.json").unlink()
    assert "has 0 tokens, and the model 11" in mistake(xformc("import", folder, "-o", tmp_path / "run"))


def assert_refused_or_imported(xformc: CommandLine, folder: Path, run: Path) -> None:
    """There is no other outcome, and a refusal leaves nothing."""
    result = xformc("import", folder, "-o", run)
    assert result.code in (0, 2), result.err
    assert run.exists() == (result.code == 0)
    shutil.rmtree(run, ignore_errors=True)
