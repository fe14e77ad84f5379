"""Any mutation of a shipped spec gives a legal graph or an error with a place, never a traceback."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from command_line import CommandLine, mistake
from hypothesis import event, given
from hypothesis import strategies as st
from laws.mutations import RIGHT_KINDS, Document, mutants
from laws.settings import examples

from xformc.compiler import compile_spec
from xformc.compiler.graph.graph import Graph
from xformc.compiler.graph.rules import RuleError
from xformc.compiler.graph.verify import verify
from xformc.compiler.passes.inference import inference
from xformc.compiler.passes.step import derive_step, with_beam
from xformc.compiler.pipeline import compile_training
from xformc.compiler.spec import Spec, SpecError, load_spec
from xformc.specs import SHIPPED

PLACE = re.compile(r".+:\d+:\d+")
ROUND_TRIPS = 4
"""Of so many legal specs, one is written out and read again."""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def check(content: bytes, folder: Path) -> None:
    """Load and compile a spec of this content; only an error with its place may come of it."""
    path = folder / "model.yaml"
    path.write_bytes(content)
    try:
        spec = load_spec(path)
        graph = compile_spec(spec)
    except SpecError as error:
        event("refused")
        assert all(PLACE.fullmatch(problem.span.place) for problem in error.problems)
        assert str(error).startswith(error.problems[0].span.place)
        return
    event("legal")
    check_loss(spec)
    if len(content) % ROUND_TRIPS == 0:
        again = folder / "again.yaml"
        again.write_text(spec.resolved_yaml(), encoding="utf-8")
        assert compile_spec(load_spec(again)) == graph
    check_steps(spec.written, graph)


def check_loss(spec: Spec) -> None:
    """A legal spec can be trained, or says at its place why not."""
    try:
        compile_training(spec)
    except RuleError as error:
        event("not trained")
        assert error.place is not None and PLACE.fullmatch(error.place), error


def check_steps(time: str | None, graph: Graph) -> None:
    """A decoder is legal, or refused with its place."""
    if time is None:
        return
    try:
        decoder = derive_step(inference(graph), time)
    except RuleError as error:
        event("not causal")
        assert error.place is not None and PLACE.fullmatch(error.place), error
        return
    verify(decoder.prepare)
    verify(with_beam(decoder).step)


def written(document: Document) -> bytes:
    """The document as YAML."""
    return yaml.dump(document, Dumper=DUMPER, allow_unicode=True, sort_keys=False).encode()


DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@examples(250)
@given(mutants())
def test_mutated_specs_give_a_graph_or_a_spec_error(folder: Path, document: Document) -> None:
    check(written(document), folder)


BEFORE: Document = {
    "start": "embed",
    "across": {"sublayer": {"cross_attention": {"memory": "encoder"}}},
    "parts": {"linear": ["heads", "d_k"]},
    "keys": "as_keys",
    "scores": {"contract": {"from": "parts", "by": "keys", "over": "d_k"}},
    "seen": {"mask": {"causal": True}},
    "weights": {"softmax": "keys"},
    "mixed": {"contract": {"by": "keys", "over": "keys"}},
    "output": {"linear": {"over": ["heads", "d_k"], "to": "d_model"}},
}
"""Attention, whose parts the random steps may take."""


@examples(150)
@given(st.lists(RIGHT_KINDS, min_size=1, max_size=5))
def test_random_steps_give_a_graph_or_a_spec_error(folder: Path, body: list[Document]) -> None:
    decoder = {**BEFORE, **{f"b{index}": step for index, step in enumerate(body)}}
    document = {
        "extends": "transformer_base",
        "sizes": {"layers": 1, "heads": 2, "d_model": 8, "d_ff": 8, "vocabulary": 8},
        "tie": [],
        "model": {"decoder": {"do": decoder}},
    }
    check(written(document), folder)


@examples(200)
@given(st.data())
def test_damaged_text_gives_a_graph_or_a_spec_error(folder: Path, data: st.DataObject) -> None:
    text = (SHIPPED / "transformer_base.yaml").read_bytes().replace(b"layers: 6", b"layers: 1")
    at = data.draw(st.integers(0, len(text)))
    gone = data.draw(st.integers(0, 20))
    check(text[:at] + data.draw(st.binary(max_size=6)) + text[at + gone :], folder)


@examples(20)
@given(mutants())
def test_the_command_line_says_one_clean_error(xformc: CommandLine, folder: Path, document: Document) -> None:
    path = folder / "model.yaml"
    path.write_bytes(written(document))
    result = xformc("check", path)
    if result.code:
        assert PLACE.match(mistake(result).splitlines()[0])
