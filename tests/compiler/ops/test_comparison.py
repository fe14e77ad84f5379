"""Comparisons, logic, and the choice between two values by a condition."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from one_op import Case, assert_same_everywhere, one_op
from steps import assert_steps_are_the_training_form, language_graph

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.axes import DType
from xformc.compiler.graph.rules import Hidden, hidden
from xformc.compiler.ops.comparison import COMPARISONS, Compare, Logic
from xformc.compiler.ops.masks import Select
from xformc.compiler.spec import SpecError

NUMBERS: tuple[DType, ...] = ("int64", "int64")
FLAGS: tuple[DType, ...] = ("bool", "bool")
CASES = {
    **{name: Case(Compare(name), (("a", "b"), ("b", "c")), dtypes=NUMBERS) for name in COMPARISONS},
    **{f"{name} a number": Case(Compare(name, 1.0), (("a",),), dtypes=NUMBERS) for name in COMPARISONS},
    "less of numbers": Case(Compare("less"), (("a", "b"), ("b",))),
    "less than half": Case(Compare("less", 0.5), (("a", "b"),)),
    "not": Case(Logic("not"), (("a", "b"),), dtypes=FLAGS),
    "and": Case(Logic("and"), (("a", "b"), ("b", "c")), dtypes=FLAGS),
    "or": Case(Logic("or"), (("a", "b"), ("c",)), dtypes=FLAGS),
    "select": Case(Select(), (("a", "b"), ("b", "c"), ("c", "a")), dtypes=("bool",)),
}


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_op_is_the_same_in_torch_and_onnx(name: str, data: st.DataObject, tmp_path_factory) -> None:
    assert_same_everywhere(CASES[name], data, tmp_path_factory.mktemp("op"))


def test_comparisons_are_those_of_python() -> None:
    a, b = [1, 2, 3], [2, 2, 2]
    expected = {"equal": [0, 1, 0], "less": [1, 0, 0], "less_equal": [1, 1, 0], "greater": [0, 0, 1]}
    expected["greater_equal"] = [0, 1, 1]
    for name, wanted in expected.items():
        module = TorchModule(one_op(Case(Compare(name), (("a",), ("a",)), dtypes=NUMBERS), {}))
        assert module(torch.tensor(a), torch.tensor(b)).int().tolist() == wanted


def test_what_both_sides_hide_stays_hidden() -> None:
    op, node = Select(), one_op(CASES["select"], {}).nodes[0]
    states: tuple[Hidden, ...] = ("zero", "masked", "open")
    for held in states:
        assert hidden.of(op)(op, node, ("open", held, held), frozenset()) == held
    assert hidden.of(op)(op, node, ("open", "zero", "masked"), frozenset()) == "low"


def test_where_chooses_by_position_and_is_its_own_step(tmp_path: Path) -> None:
    steps = "{high: {greater: 0}, low: not, both: {or: high}, one: {where: {condition: both, from: x, otherwise: 9}},"
    steps += "ends: {where: {condition: high, then: 1, otherwise: -1}}, sum: {plus: one}}"
    assert not assert_steps_are_the_training_form(language_graph(tmp_path, steps), tmp_path).states


def test_a_condition_with_more_axes_widens_the_result(tmp_path: Path) -> None:
    steps = "{score: {linear: heads}, high: {greater: 0}, wide: {where: {condition: high, from: x, otherwise: 0}},"
    steps += " output: {linear: {over: [heads, d_model], to: d_model}}}"
    assert_steps_are_the_training_form(language_graph(tmp_path, steps, "heads: 2"), tmp_path)


REFUSED = {
    "[where: {condition: x, otherwise: 0}]": (
        "needs a condition, found start: float32[batch, text, d_model=6]",
        "compare two values first",
    ),
    "{high: {greater: 0}, out: {where: {condition: high, otherwise: text, from: x}}}": (
        "needs float32 values, found text: int64[batch, text]",
        "embed the tokens first",
    ),
    "{high: {greater: 0}, out: {and: x}}": (
        "logic: needs conditions, found bool[batch, text, d_model=6] and float32[batch, text, d_model=6]",
        None,
    ),
    "[not]": ("not needs conditions, found start: float32[batch, text, d_model=6]", "compare two values first"),
    "[{times: d_modle}]": ("unknown value 'd_modle'", "did you mean 'd_model'?"),
    "[{divide: 0}]": ("the number to divide by must not be 0, found 0", None),
}


@pytest.mark.parametrize("steps", REFUSED)
def test_wrong_operands_are_refused(tmp_path: Path, steps: str) -> None:
    with pytest.raises(SpecError) as error:
        language_graph(tmp_path, steps)
    (problem,) = error.value.problems
    assert (problem.message, problem.hint, problem.span.line) == (*REFUSED[steps], 6)
