"""Special tokens other than xformc's own: in the spec, the searches of every target, and both runtimes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece

import xformc
from tests.runtime.kernel_session import kernel_library
from xformc import UserError
from xformc.compiler.spec import Spec, SpecError, load_spec
from xformc.format.manifest import manifest_checksum
from xformc.format.tokens import SPECIAL, SpecialTokens
from xformc.runtime.checks.agreement import compare_runtimes
from xformc.runtime.generation.generate import Prompt, sample
from xformc.runtime.libxformc import CppEngine

SIZES = "sizes: {layers: 1, d_model: 16, d_ff: 32, heads: 2, vocabulary: 50"
TRANSLATION = f"extends: transformer_base\n{SIZES}, d_k: 8, d_v: 8}}\n"
LANGUAGE_MODEL = f"extends: gpt\n{SIZES}, max_positions: 40}}\ntrain: {{max_length: 40}}\n"
LAST = "{pad: 49, begin: 49, end: 0, unknown: 1}"
SEVERAL = "{pad: 1, begin: 2, end: [2, 17, 9], unknown: 3}"
NONE = "{pad: none, begin: none, end: [7, 3], unknown: none}"
TARGETS = ["portable", "cuda", "native"]


def write_spec(folder: Path, base: str, special: str) -> Spec:
    path = folder / "spec.yaml"
    path.write_text(f"{base}special_tokens: {special}\n")
    return load_spec(path)


def build(spec: Path, engine: Path, target: Any) -> None:
    if target == "native":
        kernel_library()
    xformc.build(spec, engine, target=target)


def problems(folder: Path, base: str, special: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        write_spec(folder, base, special)
    return [problem.message for problem in caught.value.problems]


@pytest.mark.parametrize("special", [LAST, SEVERAL])
@pytest.mark.parametrize("target", TARGETS)
def test_translation_has_the_specs_special_tokens(tmp_path: Path, target: str, special: str) -> None:
    spec = write_spec(tmp_path, TRANSLATION, special)
    build(tmp_path / "spec.yaml", tmp_path / "engine", target)
    engine = xformc.load(tmp_path / "engine", device="cpu", threads=1)
    ids = engine.manifest.inputs["source"].special
    assert ids == spec.inputs["target"].special != SPECIAL
    rows = [[5, 0, 8, 6, ids.last], [7, ids.last]]
    padded = [[*row, *[ids.fill] * (5 - len(row))] for row in rows]
    together = engine.search(padded, max_length_offset=4)
    for row, source in enumerate(rows):
        alone = engine.search([source], max_length_offset=4)
        assert together.text(row, 0) == alone.text(0, 0)
        assert not {*alone.text(0, 0)[:-1]} & {*ids.end}
    with pytest.raises(UserError, match=rf"then padding \({ids.pad}\) only"):
        engine.search([[ids.fill, 5]])


@pytest.mark.parametrize("target", TARGETS)
def test_language_model_without_padding_and_begin(tmp_path: Path, target: str) -> None:
    write_spec(tmp_path, LANGUAGE_MODEL, NONE)
    build(tmp_path / "spec.yaml", tmp_path / "engine", target)
    engine = xformc.load(tmp_path / "engine", device="cpu", threads=1)
    assert engine.manifest.inputs["text"].special == SpecialTokens(None, None, None, (7, 3))
    prompts = [Prompt([0, 5, 0], 1), Prompt([9], 2), Prompt([0], 3)]
    together = sample(engine.session, prompts, engine.manifest.sampling)
    for row, prompt in enumerate(prompts):
        alone = sample(engine.session, [prompt], engine.manifest.sampling)
        length = int(alone.lengths[0])
        assert together.tokens[row, :length].tolist() == alone.tokens[0].tolist()
        assert not {*alone.tokens[0, : length - 1].tolist()} & {7, 3}


def test_engine_spec_has_the_special_tokens(tmp_path: Path) -> None:
    spec = write_spec(tmp_path, TRANSLATION, SEVERAL)
    (tmp_path / "resolved.yaml").write_text(spec.resolved_yaml())
    assert load_spec(tmp_path / "resolved.yaml").inputs["source"].special == SpecialTokens(1, 3, 2, (2, 17, 9))


@pytest.mark.parametrize(
    ("special", "message"),
    [
        ("{pad: 50}", "the special token 50 is not in the vocabulary of 'source', which has 50"),
        ("{pad: x}", "must be the id of a token or 'none', found 'x'"),
        ("{end: none}", "must be the id of a token, found 'none'"),
        ("{end: []}", "there must be 1 to 64 end tokens, found 0"),
        ("{end: [-1]}", "must be the id of a token, found -1"),
        ("{pad: 3}", "padding cannot be an end token, 3"),
        ("{bos: 3}", "unknown key 'bos'"),
        ("{begin: none}", "translation needs a begin token; only a language_model may have none"),
        ("{pad: none}", "translation needs padding; only a language_model may have none"),
    ],
)
def test_wrong_special_tokens_are_reported(tmp_path: Path, special: str, message: str) -> None:
    assert message in problems(tmp_path, TRANSLATION, special)


def write_inputs(folder: Path, source: str, target: str) -> Spec:
    """A translation whose inputs have these special tokens beside the spec's, which are LAST."""
    tokens = "tokens: vocabulary, special_tokens"
    inputs = f"inputs: {{source: {{{tokens}: {source}}}, target: {{{tokens}: {target}}}}}\n"
    return write_spec(folder, TRANSLATION + inputs, LAST)


@pytest.mark.parametrize("target", TARGETS)
def test_an_input_has_special_tokens_of_its_own(tmp_path: Path, target: str) -> None:
    spec = write_inputs(tmp_path, "{begin: none, end: 12}", "{begin: 12}")
    source, written = SpecialTokens(49, 1, None, (12,)), SpecialTokens(49, 1, 12, (0,))
    assert [item.special for item in spec.inputs.values()] == [source, written]
    (tmp_path / "resolved.yaml").write_text(spec.resolved_yaml())
    assert load_spec(tmp_path / "resolved.yaml").inputs == spec.inputs
    build(tmp_path / "spec.yaml", tmp_path / "engine", target)
    engine = xformc.load(tmp_path / "engine", device="cpu", threads=1)
    assert [item.special for item in engine.manifest.inputs.values()] == [source, written]
    assert 49 not in engine.search([[5, 8, 12]], max_length_offset=4).text(0, 0)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("{end: 50}", "{}", "the special token 50 is not in the vocabulary of 'source', which has 50"),
        ("{end: 49}", "{}", "padding cannot be an end token, 49"),
        ("{}", "{begin: none}", "translation needs a begin token; only a language_model may have none"),
        ("{pad: none}", "{}", "translation needs padding; only a language_model may have none"),
        ("{bos: 1}", "{}", "unknown key 'bos'"),
    ],
)
def test_wrong_special_tokens_of_an_input_are_reported(tmp_path: Path, source: str, target: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        write_inputs(tmp_path, source, target)
    assert message in [problem.message for problem in caught.value.problems]


@pytest.mark.parametrize("target", TARGETS)
def test_a_written_text_beside_an_image_needs_no_padding(tmp_path: Path, target: str) -> None:
    sizes = "sizes: {d_model: 8, side: 4, vocabulary: 20, heads: 2, d_k: 4, d_v: 4}\n"
    inputs = "inputs: {image: {values: [side]}, caption: {tokens: vocabulary}}\nresults: {caption: {text: logits}}\n"
    model = (
        "model:\n"
        "  sight: {from: image, do: [linear: {over: side, to: d_model}]}\n"
        "  logits: {from: caption, do: [embedding: d_model, plus: sight, causal_self_attention, linear: vocabulary]}\n"
    )
    spec = write_spec(tmp_path, sizes + inputs + model, "{pad: none, unknown: none, begin: 19, end: 19}")
    assert spec.inputs["caption"].special == SpecialTokens(None, None, 19, (19,))
    build(tmp_path / "spec.yaml", tmp_path / "engine", target)
    engine = xformc.load(tmp_path / "engine", device="cpu", threads=1)
    images = np.random.default_rng(0).random((3, 4), np.float32)
    options: Any = {"beam_size": 2, "n_best": 2, "max_length_offset": 6, "max_length_factor": 0.0}
    found = engine.transcribe({"image": images}, **options)
    assert len(found) == 3 and all(min(one.tokens) >= 0 and max(one.tokens) < 20 for row in found for one in row)
    if target == "native":
        assert {stage.value for stage in compare_runtimes(tmp_path / "engine").stages} == {0}


def test_padding_that_a_model_needs_is_reported(tmp_path: Path) -> None:
    base = f"extends: text_classifier\n{SIZES}}}\n"
    spec = write_spec(tmp_path, base, "{pad: none}")
    with pytest.raises(SpecError, match="this needs to know where 'text' ends, and its vocabulary has no padding"):
        spec.graph()


def make_tokenizer(path: Path, **ids: Any) -> Path:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["one two three four five six seven eight"] * 4),
        model_prefix=str(path.with_suffix("")),
        vocab_size=40,
        hard_vocab_limit=False,
        minloglevel=2,
        **ids,
    )
    return path


def test_foreign_tokenizer_may_lack_padding(tmp_path: Path) -> None:
    write_spec(tmp_path, TRANSLATION, "{pad: 49, begin: 49, end: 2, unknown: 0}")
    model = make_tokenizer(tmp_path / "tokenizer.model", unk_id=0, bos_id=1, eos_id=2, pad_id=-1)
    xformc.build(tmp_path / "spec.yaml", tmp_path / "engine", tokenizers={"source": model, "target": model})
    engine = xformc.load(tmp_path / "engine", threads=1)
    assert engine.tokenizer is not None
    ids = engine.tokenizer.encode("source", "one two")
    assert ids[-1] == 2 and engine.tokenizer.decode("source", [49, *ids, 49]) == "one two"
    wrong = make_tokenizer(tmp_path / "wrong.model", unk_id=1, bos_id=0, eos_id=2, pad_id=-1)
    with pytest.raises(UserError, match=r"has the special tokens \[-1, 1, 0, 2\] \(pad, unknown, begin, end\), not"):
        xformc.build(tmp_path / "spec.yaml", tmp_path / "other", tokenizers={"source": wrong, "target": wrong})


def test_libxformc_has_the_same_special_tokens(tmp_path: Path) -> None:
    kernel_library()
    write_spec(tmp_path, TRANSLATION, "{pad: 49, begin: 49, end: [2, 17], unknown: 0}")
    model = make_tokenizer(tmp_path / "tokenizer.model", unk_id=0, bos_id=1, eos_id=2, pad_id=-1)
    xformc.build(
        tmp_path / "spec.yaml", tmp_path / "engine", tokenizers={"source": model, "target": model}, target="native"
    )
    texts = ["one two three", "seven", "six eight ninety"]
    found = xformc.load(tmp_path / "engine", threads=1).translate(texts, prefixes=["one", "", "two"])
    other = CppEngine(tmp_path / "engine").translate(texts, prefixes=["one", "", "two"])
    assert [[one.tokens for one in row] for row in found] == [[one.tokens for one in row] for row in other]


def change(engine: Path, **special: object) -> None:
    path = engine / "engine.json"
    content = json.loads(path.read_text())
    content["inputs"]["source"]["special_tokens"].update(special)
    content["checksum"] = manifest_checksum(content)
    path.write_text(json.dumps(content))


def test_wrong_special_tokens_in_engine_json_are_refused(tmp_path: Path) -> None:
    write_spec(tmp_path, TRANSLATION, SEVERAL)
    xformc.build(tmp_path / "spec.yaml", tmp_path / "engine")
    for key, value in {"pad": 50, "unknown": -1, "begin": "x", "end": []}.items():
        change(tmp_path / "engine", **{key: value})
        with pytest.raises(UserError, match=f"inputs.source.special_tokens.{key} must be"):
            xformc.load(tmp_path / "engine")
        change(tmp_path / "engine", **{key: {"pad": 1, "unknown": 3, "begin": 2, "end": [2, 17, 9]}[key]})
    change(tmp_path / "engine", pad=17)
    with pytest.raises(UserError, match=r"special_tokens\.end has the id of padding, 17"):
        xformc.load(tmp_path / "engine")
