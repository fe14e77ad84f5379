"""Searches with a shortlist write its tokens alone, as the certificate checks, and what else a call asks for."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command_line import CommandLine, listing, mistake
from safetensors.numpy import save_file

from tests import tiny_engine
from tests.runtime.kernel_session import kernel_library
from xformc.api import build
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.build import Rounding, build_engine
from xformc.compiler.pipeline import compile_spec
from xformc.compiler.shortlist import NO_TOKEN, Shortlist, read_shortlist, write_shortlist
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.format.names import WEIGHTS
from xformc.format.precision import Precision
from xformc.format.targets import Target
from xformc.runtime import Engine, load
from xformc.runtime.libxformc import CppEngine
from xformc.verification import verify

SPEC = """\
extends: transformer_base
sizes: {layers: 1, d_model: 16, heads: 2, d_ff: 24, vocabulary: PIECES}
decode: {beam_size: 3, n_best: 3, max_length: {factor: 1, offset: 5}MORE}
"""
TEXTS = ["one two dogs", "a man rides", "dogs", "play two one two", "hello"]
END = 3


@dataclass(frozen=True)
class Files:
    """A spec, its tokenizer and a shortlist of few tokens."""

    folder: Path
    size: int

    def build(self, target: Target, precision: Precision = "float32", more: str = "", **options: Any) -> Path:
        """The folder of an engine, built when it is first asked for."""
        if target == "native":
            kernel_library()
        out = self.folder / f"{target}-{precision}-{len(more)}"
        if not out.exists():
            spec = self.folder / "spec.yaml"
            spec.write_text(SPEC.replace("PIECES", str(self.size)).replace("MORE", more))
            tokenizers: dict[str, Path] = dict.fromkeys(("source", "target"), self.folder / "tokenizer.model")
            options = {"shortlist": self.shortlist, "rounding": Rounding(precision), **options}
            assert build_engine(load_spec(spec), None, tokenizers, target, out, **options).passed
        return out

    @property
    def shortlist(self) -> Path:
        return self.folder / "shortlist.safetensors"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("shortlist")
    size, rng = tiny_engine.train_tokenizer(folder / "tokenizer.model"), np.random.default_rng(1)
    likely = rng.integers(4, size, (size, 6), dtype=np.int32)
    likely[::3, 3:] = NO_TOKEN
    write_shortlist(Shortlist(np.array([5, 9], np.int32), likely), folder / "shortlist.safetensors")
    return Files(folder, size)


def allowed(files: Files, engine: Engine, text: str, *others: int) -> set[int]:
    assert engine.tokenizer is not None
    ids = engine.tokenizer.encode("source", text)
    found = read_shortlist(files.shortlist).allowed(ids, [END, *others], files.size)
    return set(np.flatnonzero(found).tolist())


@pytest.mark.processor
@pytest.mark.parametrize("target", ["portable", "native"])
def test_translations_have_listed_tokens_and_those_asked_for(files: Files, target: Target) -> None:
    engine = load(files.build(target), threads=1)
    lists = [allowed(files, engine, text) for text in TEXTS]
    assert all(len(own) < files.size // 2 for own in lists), "the lists leave something out"
    plain = engine.translate(TEXTS, max_length_offset=9)
    for found, own in zip(plain, lists, strict=True):
        assert all(set(one.tokens) <= own and np.isfinite(one.score) for one in found)
    outside = next(token for token in range(4, files.size) if all(token not in own for own in lists))
    begun = engine.translate(TEXTS, prefixes=[[outside]] * 5)
    assert all(one.tokens[0] == outside for found in begun for one in found)
    phrased = engine.translate(TEXTS, phrases=[[[outside]]] * 5, n_best=1)
    assert all(outside in found[0].tokens for found in phrased)
    for found, own in zip([*begun, *phrased], [*lists, *lists], strict=True):
        assert all(set(one.tokens) <= {*own, outside} for one in found)
    drawn = {token for found in engine.translate(TEXTS * 9, samples=1, seed=1) for one in found for token in one.tokens}
    assert drawn - set[int]().union(*lists), "samples are of all tokens"


@pytest.mark.processor
@pytest.mark.parametrize("target", ["portable", "native"])
def test_scores_of_given_texts_are_among_all_tokens(files: Files, target: Target) -> None:
    """Alone, beside searches in one batch or in slots, token by token, and in C++."""
    engine = load(files.build(target), threads=1)
    found = engine.score(TEXTS, TEXTS, length_penalty=0, token_scores=True)
    for one in found:
        assert one.token_scores is not None
        assert one.score == pytest.approx(sum(one.token_scores), abs=1e-4)
    searched = engine.translate(TEXTS, length_penalty=0, n_best=1)
    again = engine.score(TEXTS, [row[0].tokens for row in searched], length_penalty=0)
    assert all(one.score < row[0].score - 0.1 for one, row in zip(again, searched, strict=True))
    plain: Any = {"length_penalty": 0, "n_best": 1}
    whole = [one.tokens for one in found]
    mixed = engine.translate(TEXTS * 2, prefixes=[*whole, *[[]] * len(TEXTS)], **plain)
    alone = [*[[one] for one in found], *engine.translate(TEXTS, **plain)]
    for row, other in zip(mixed, alone, strict=True):
        assert (row[0].tokens, row[0].score) == (other[0].tokens, pytest.approx(other[0].score, abs=1e-5))
    if target == "native":
        others = CppEngine(files.build(target), threads=1).score(TEXTS, TEXTS, length_penalty=0)
        assert [one.score for one in others] == [one.score for one in found]
        with engine.serve(slots=2, **plain) as server:
            replies = [server.submit(text, prefix=tokens) for text, tokens in zip(TEXTS, whole, strict=True)]
            assert [reply.result()[0].score for reply in replies] == [one.score for one in found]


@pytest.mark.processor
@pytest.mark.parametrize("target", ["portable", "native"])
def test_a_whole_text_that_is_made_likelier_leaves_the_lists(files: Files, target: Target) -> None:
    """They hold in a search that is free to write another text."""
    engine = load(files.build(target), threads=1)
    lists = [allowed(files, engine, text) for text in TEXTS]
    outside = next(token for token in range(4, files.size) if all(token not in own for own in lists))
    for prefix in ([outside, END], [outside] * 30):
        for found, own in zip(engine.translate(TEXTS, prefixes=[prefix] * 5, prefix_bias=0.01), lists, strict=True):
            assert all(set(one.tokens) <= {*own, outside} for one in found)


@pytest.mark.processor
@pytest.mark.parametrize("target", ["portable", "native"])
def test_a_constraint_allows_all_tokens(files: Files, target: Target) -> None:
    engine = load(files.build(target), threads=1)
    lists = [allowed(files, engine, text) for text in TEXTS[:2]]
    found = engine.translate(TEXTS[:2], regex=["(hello|dogs)", None])
    assert found[0][0].text in ("hello", "dogs")
    assert all(set(one.tokens) <= lists[1] for one in found[1])


@pytest.mark.processor
@pytest.mark.parametrize("precision", ["float32", "int8", "bfloat16", "int4"])
def test_kernels_find_what_the_definition_finds_in_every_batch(files: Files, precision: Precision) -> None:
    """The certificate compares with the definition; here batches, the C++ library, and whatever is left in a beam."""
    folder = files.build("native", precision)
    engine = load(folder, threads=1)
    options: list[dict[str, Any]] = [{}, {"beam_size": 1}, {"beam_size": 20, "n_best": 20}, {"suppress_tokens": [5, 9]}]
    for given in options:
        together = engine.translate(TEXTS, **given)
        assert together == [engine.translate([text], **given)[0] for text in TEXTS]
        assert together == engine.translate(TEXTS[::-1], **given)[::-1]
        assert CppEngine(folder, threads=1).translate(TEXTS, **given) == together
    assert verify(folder).passed


@pytest.mark.processor
def test_the_default_prefix_is_listed(files: Files) -> None:
    engine = load(files.build("native", more=", prefix: [7, 8]"), threads=1)
    for text, found in zip(TEXTS, engine.translate(TEXTS), strict=True):
        assert all(one.tokens[:2] == (7, 8) for one in found)
        assert all(set(one.tokens) <= allowed(files, engine, text, 7, 8) for one in found)


@pytest.mark.processor
def test_logits_that_are_no_plain_projection_are_listed(files: Files, tmp_path: Path) -> None:
    """Of two models, whose probabilities are averaged, and with groups and edits."""
    kernel_library()
    runs = [tmp_path / "one", tmp_path / "two"]
    for seed, run in enumerate(runs):
        run.mkdir()
        (run / "spec.yaml").write_text(SPEC.replace("PIECES", str(files.size)).replace("MORE", ""))
        shutil.copy(files.folder / "tokenizer.model", run / "tokenizer.model")
        save_file(dict(TorchModule(compile_spec(load_spec(run / "spec.yaml")), seed=seed).arrays()), run / WEIGHTS)
    out = tmp_path / "ensemble"
    assert build(runs, out, target="native", shortlist=files.shortlist).passed
    engine = load(out, threads=1)
    options: list[dict[str, Any]] = [
        {},
        {"beam_groups": 3, "diversity_penalty": 0.5},
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
    ]
    for given in options:
        for text, found in zip(TEXTS, engine.translate(TEXTS, **given), strict=True):
            assert all(set(one.tokens) <= allowed(files, engine, text) for one in found)


def test_a_list_and_bans_may_leave_nothing(files: Files) -> None:
    engine = load(files.build("portable"), threads=1)
    own = sorted(allowed(files, engine, TEXTS[0]) - {END})
    found = engine.translate(TEXTS[:1], suppress_tokens=own, min_length=3, n_best=1)
    assert found[0][0].tokens == () and found[0][0].score == -np.inf


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("shortlist.likely", lambda rows: rows[:5], "has a row for 5 source tokens"),
        ("shortlist.likely", lambda rows: rows + 9999, "the shortlist has the token 10,"),
        ("shortlist.common", lambda rows: rows[rows != END], "lacks an end token"),
        ("shortlist.common", lambda rows: rows.astype(np.int64), "not a whole shortlist"),
    ],
)
def test_verify_refuses_lists_that_do_not_fit(
    files: Files, tmp_path: Path, name: str, change: Callable[[Any], Any], message: str
) -> None:
    folder = tmp_path / "engine"
    shutil.copytree(files.build("portable"), folder)
    model = onnx.load(folder / "model.onnx")
    (tensor,) = [one for one in model.graph.initializer if one.name == name]
    tensor.CopyFrom(onnx.numpy_helper.from_array(change(onnx.numpy_helper.to_array(tensor)), name))
    onnx.save(model, folder / "model.onnx")
    manifest = json.loads((folder / "engine.json").read_text())
    del manifest["checksum"], manifest["files"]
    (folder / "engine.json").unlink()
    tiny_engine.write_manifest(folder, manifest)
    with pytest.raises(UserError, match=message):
        verify(folder)


def test_source_tokens_may_allow_nothing(files: Files, tmp_path: Path) -> None:
    common = np.arange(4, 20, dtype=np.int32)
    save_file({"common": common, "likely": np.zeros((files.size, 0), np.int32)}, tmp_path / "common")
    assert read_shortlist(tmp_path / "common").likely.tolist() == [[NO_TOKEN]] * files.size


def test_an_engine_says_that_it_has_one(files: Files, xformc: CommandLine) -> None:
    folder = files.build("portable")
    assert load(folder).manifest.shortlist
    assert "among the tokens of a shortlist" in xformc("inspect", folder).out


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8", "int4"])
def test_a_text_brings_its_list_when_it_joins_a_batch(files: Files, precision: Precision) -> None:
    """Lists of several lengths, one of them long because of its beginning, take turns in two slots."""
    engine = load(files.build("native", precision), threads=1)
    beginnings: list[Any] = [(), list(range(4, 70)), *[()] * (len(TEXTS) - 2)]
    whole = engine.translate(TEXTS, prefixes=beginnings, n_best=2)
    assert engine.translate(TEXTS, prefixes=beginnings, n_best=2, slots=2) == whole
    assert engine.translate(TEXTS[::-1], prefixes=beginnings[::-1], n_best=2, slots=3) == whole[::-1]


def test_what_is_no_shortlist_is_refused(files: Files, xformc: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC.replace("PIECES", str(files.size)).replace("MORE", ""))

    def refused(*arguments: str | Path) -> str:
        before = listing(tmp_path)
        found = mistake(xformc("build", tmp_path / "spec.yaml", "-o", tmp_path / "engine", *arguments))
        assert listing(tmp_path) == before
        return found

    def file(name: str, **tensors: np.ndarray) -> Path:
        save_file(tensors, tmp_path / name)
        return tmp_path / name

    common, likely = np.array([5], np.int32), np.full((files.size, 2), 5, np.int32)
    portable = ("--target", "portable", "--shortlist")
    (tmp_path / "text").write_text("a list")
    for path, message in {
        tmp_path / "none": "no such file",
        tmp_path: "is no file",
        tmp_path / "text": "not a complete safetensors file",
        file("other", common=common): "not a shortlist: it has 'common'",
        file("floats", common=common, likely=likely.astype(np.float32)): "are not lists of tokens",
        file("below", common=common, likely=likely - 9): "are not lists of tokens",
        file("empty", common=common[:0], likely=likely): "has no common tokens",
        file("nothing", common=common[:0] - 1, likely=likely): "has no common tokens",
        file("halves", common=common, likely=likely.astype(np.float16)): "are not lists of tokens",
        file("short", common=common, likely=likely[1:]): f"has a row for {files.size - 1:,} source tokens",
        file("large", common=common + files.size, likely=likely): f"has the token {files.size + 5:,}",
    }.items():
        assert message in refused(*portable, path)
    assert "--target cuda has no search with a shortlist" in refused(
        "--target", "cuda", "--shortlist", file("right", common=common, likely=likely)
    )
    (tmp_path / "spec.yaml").write_text("extends: gpt\nsizes: {layers: 1, d_model: 16, heads: 2, vocabulary: 40}\n")
    assert "--shortlist is for models that translate one text" in refused(*portable, tmp_path / "right")
