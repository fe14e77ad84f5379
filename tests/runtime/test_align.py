"""Alignments of translations with their sources, from the attention of the model."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from tests import tiny_engine
from tests.command_line import CommandLine, mistake
from tests.runtime.kernel_session import kernel_library
from tests.small_specs import small
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.build import build_engine
from xformc.compiler.certify.certify import engine_parameters
from xformc.compiler.passes.inference import inference
from xformc.compiler.pipeline import begin_alignments, compile_engine
from xformc.compiler.spec import Spec, SpecError, load_spec
from xformc.errors import UserError
from xformc.format.targets import Target
from xformc.runtime import Alignment, Engine, load
from xformc.runtime.libxformc import CppEngine
from xformc.runtime.text.words import words_at, written_words

SIZES = "d_model: 16, d_ff: 32, heads: 2, dropout: 0.1"
TEXTS = ["two dogs play", "", " hello  wörld ☃ one"]
OTHERS = ["a man rides a bicycle", "one", "we ☃ here"]


def write(folder: Path, text: str) -> Spec:
    (folder / "spec.yaml").write_text(text)
    return load_spec(folder / "spec.yaml")


def build(folder: Path, target: Target, text: str) -> Path:
    size = tiny_engine.train_tokenizer(folder / "tokenizer.model")
    spec = write(folder, text.replace("SIZES", f"{SIZES}, vocabulary: {size}").replace("PIECES", str(size)))
    tokenizers = {name: folder / "tokenizer.model" for name in ("source", "target")}
    build_engine(spec, None, tokenizers, target, folder / target)
    return folder / target


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An engine with random weights whose last layer aligns."""
    text = "extends: transformer_base\nsizes: {layers: 2, SIZES}\ndecode: {alignment: decoder/1/cross_attention}\n"
    return build(tmp_path_factory.mktemp("aligned"), "cpu", text)


def weights_in_torch(engine: Path, source: Sequence[int], written: Sequence[int], layer: int) -> np.ndarray:
    """The mean over the heads of the softmax of scaled dot products, from the queries and keys of the training form."""
    graph = inference(load_spec(engine / "spec.yaml").graph())
    module = TorchModule(graph).eval()
    module.load_arrays(engine_parameters(graph, engine / "model.onnx"))
    with torch.no_grad():
        values = module.all_values(torch.tensor([source]), torch.tensor([[2, *written[:-1]]]))
    path = f"decoder/{layer}/cross_attention"
    query, key = values[f"{path}/query"][0], values[f"{path}/key"][0]
    return torch.softmax(torch.einsum("qhd,khd->hqk", query, key) / 8**0.5, -1).mean(0).numpy()


def test_a_model_of_an_engine_that_was_replaced_is_not_opened(folder: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(folder, tmp_path / "engine"))
    with load(own, threads=1) as engine:
        shutil.rmtree(own)
        (tmp_path / "new").mkdir()
        text = "extends: transformer_base\nsizes: {layers: 1, SIZES}\ndecode: {alignment: decoder/0/cross_attention}\n"
        build(tmp_path / "new", "cpu", text).rename(own)
        with pytest.raises(UserError, match="the engine in this folder has changed since it was loaded"):
            engine.align(TEXTS, OTHERS)


def test_libxformc_links_as_python_does(folder: Path) -> None:
    kernel_library()

    def links(engine: Engine | CppEngine) -> list[Alignment | None]:
        translated = engine.translate(TEXTS, alignment=True, n_best=2, max_length_offset=4)
        return [*engine.align(TEXTS, OTHERS), *(one.alignment for several in translated for one in several)]

    with load(folder, threads=1) as engine:
        found, other = links(engine), links(CppEngine(folder, threads=1))
    assert found == other and len(found) == 3 + 5
    for one, same in zip(found, other, strict=True):
        assert one is not None and same is not None
        np.testing.assert_array_equal(one.attention, same.attention)


def test_the_weights_are_those_of_the_attention_that_the_spec_names(folder: Path) -> None:
    with load(folder, threads=1) as engine:
        found = engine.translate(TEXTS, alignment=True, n_best=2, max_length_offset=4)
        tokenizer = engine.tokenizer
        assert tokenizer is not None
        for text, hypotheses in zip(TEXTS, found, strict=True):
            ids = tokenizer.encode("source", text)
            for one in hypotheses:
                assert one.alignment is not None
                if not text:
                    assert one.alignment.words == one.alignment.tokens == ()
                    continue
                expected = weights_in_torch(folder, ids, one.tokens, 1)
                np.testing.assert_allclose(one.alignment.attention, expected, atol=1e-5)
                sources = [
                    index for index in range(len(ids)) if tokenizer.pieces("source", ids)[index] not in ("▁", "</s>")
                ]
                for source, target in one.alignment.tokens:
                    assert source == max(sources, key=lambda index: expected[target, index])
        given = engine.align(TEXTS, OTHERS)
        assert [str(one) for one in engine.align_stream(iter(TEXTS), iter(OTHERS), window=1)] == list(map(str, given))
        assert given[1].words == () and given[1].attention.shape == (3, 1)
        for text, other, one in zip(TEXTS, OTHERS, given, strict=True):
            ids, written = (tokenizer.encode(name, some) for name, some in (("source", text), ("target", other)))
            np.testing.assert_allclose(one.attention, weights_in_torch(folder, ids, written, 1), atol=1e-5)
            assert all(here < len(text.split()) and there < len(other.split()) for here, there in one.words)
        assert {there for _, there in given[0].words} == set(range(5))
        assert {there for _, there in given[2].words} == {0, 1, 2}, "an unknown word is a word"


@pytest.mark.processor
def test_links_of_native_and_of_recurrent_models_are_those_of_the_training_form(tmp_path: Path, folder: Path) -> None:
    kernel_library()
    spec = load_spec(folder / "spec.yaml")
    arrays = engine_parameters(spec.graph(), folder / "model.onnx")
    tokenizers = {name: folder / "tokenizer.model" for name in ("source", "target")}
    build_engine(spec, arrays, tokenizers, "native", tmp_path / "native")
    with load(folder, threads=1) as one, load(tmp_path / "native", threads=1) as other:
        for mine, its in zip(one.align(TEXTS, OTHERS), other.align(TEXTS, OTHERS), strict=True):
            assert (mine.words, mine.tokens) == (its.words, its.tokens)
            np.testing.assert_allclose(mine.attention, its.attention, atol=1e-5)
        (alone,) = other.align(TEXTS[:1], OTHERS[:1])
        np.testing.assert_array_equal(alone.attention, other.align(TEXTS, OTHERS)[0].attention)


def test_attention_inside_a_recurrence_aligns_too(tmp_path: Path) -> None:
    """The certificate has compared its weights with the training form."""
    text = "extends: seq2seq_attention\nsizes: {d_model: 8, both: 16, d_a: 8, vocabulary: PIECES, dropout: 0.0}\n"
    with load(build(tmp_path, "cpu", text), threads=1) as engine:
        (one,) = engine.align(TEXTS[:1], OTHERS[:1])
    np.testing.assert_allclose(one.attention.sum(1), 1, atol=1e-5)
    assert '"name": "attention"' in (tmp_path / "cpu" / "certificate.json").read_text()


def test_a_setting_that_names_no_attention_is_shown_at_its_place(tmp_path: Path) -> None:
    base = "extends: transformer_base\nsizes: {layers: 2}\ndecode: {alignment: decoder/WHICH}\n"
    cases = {
        "9/cross_attention": "no attention of 'target' to 'source'",
        "1/causal_self_attention": "no attention of 'target' to 'source'",
        "*/cross_attention": "more than one attention of 'target' to 'source'",
    }
    for which, message in cases.items():
        with pytest.raises(SpecError, match=r"spec.yaml:3:21: 'decoder/.*' is " + message):
            write(tmp_path, base.replace("WHICH", which)).graph()
    with pytest.raises(SpecError, match="the model has no attention of 'target' to 'source'"):
        write(tmp_path, "extends: seq2seq\ndecode: {alignment: decoder}\n").graph()
    with pytest.raises(SpecError, match=r"decode.alignment has no effect here"):
        write(tmp_path, "extends: gpt\ndecode: {alignment: decoder}\n")


def test_an_engine_without_the_model_of_alignments_says_so(folder: Path, tmp_path: Path) -> None:
    assert begin_alignments(compile_engine(small("seq2seq"))) is None, "a model without attention has none"
    older = shutil.copytree(folder, tmp_path / "older")
    (older / "alignments.onnx").unlink()
    tiny_engine.write_manifest(older, json.loads((older / "engine.json").read_text()))
    with load(older, threads=1) as engine:
        with pytest.raises(UserError, match="spec has no alignments"):
            engine.align(["a"], ["b"])
        with pytest.raises(UserError, match="spec has no alignments"):
            engine.translate(["a"], alignment=True)


def test_the_command_line_writes_links(folder: Path, tmp_path: Path, xformc: CommandLine) -> None:
    (tmp_path / "in").write_text("two dogs play\n\n hello  wörld ☃ one\n")
    (tmp_path / "out").write_text("\n".join([*OTHERS, ""]))
    with load(folder, threads=1) as engine:
        found = [one for (one,) in engine.translate(TEXTS, alignment=True, max_length_offset=4)]
        given = engine.align(TEXTS, OTHERS)
    command = ("translate", folder, "-i", tmp_path / "in", "--max-length-offset", "4")
    lines = xformc(*command, "--align").out.splitlines()
    assert lines == [f"{one.text}\t{one.alignment}" for one in found]
    assert xformc(*command, "--align", "--n-best", "2").out.splitlines()[0].endswith(f" ||| {found[0].alignment}")
    objects = [json.loads(line) for line in xformc(*command, "--attention", "--json").out.splitlines()]
    for fields, one in zip(objects, found, strict=True):
        (hypothesis,) = fields["hypotheses"]
        assert one.alignment is not None and hypothesis["alignment"] == [list(link) for link in one.alignment.words]
        weights = np.array(hypothesis["attention"]).reshape(one.alignment.attention.shape)
        np.testing.assert_allclose(weights, one.alignment.attention, atol=1e-6)
    assert mistake(xformc(*command, "--attention")).startswith("--attention needs --json")
    pairs = ("align", folder, tmp_path / "in", tmp_path / "out")
    assert xformc(*pairs).out.splitlines() == [str(one) for one in given]
    assert json.loads(xformc(*pairs, "--json").out.splitlines()[2]) == {
        "line": 3,
        "alignment": [list(link) for link in given[2].words],
    }
    (tmp_path / "short").write_text("one\n")
    refused = xformc(*pairs[:3], tmp_path / "short")
    assert mistake(refused, refused.out).startswith("line 2: there is no translation for this text")


def test_words_are_what_stands_between_spaces() -> None:
    assert words_at(" two  dogs", [(0, 4), (4, 6), (5, 8), (8, 10), (3, 8)]) == [(0, 1), (0, 0), (1, 2), (1, 2), (0, 2)]
    pieces = ["▁two", "▁", "do", "gs", "<unk>", "▁play▁in", "g", ""]

    def decode(ids: Sequence[int]) -> str:
        return "".join(pieces[one] for one in ids if pieces[one] != "<unk>").replace("▁", " ").lstrip()

    assert written_words(decode, range(8)) == [(0, 1), (0, 0), (1, 2), (1, 2), (0, 0), (2, 4), (3, 4), (0, 0)]
    assert written_words(decode, []) == []
