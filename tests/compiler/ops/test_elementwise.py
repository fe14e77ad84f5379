"""Arithmetic on two values: axes are matched by name, and the result has the axes of both."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from one_op import Case, assert_same_everywhere, one_op
from steps import assert_steps_are_the_training_form, language_graph

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Op
from xformc.compiler.graph.graph_builder import GraphBuilder
from xformc.compiler.graph.rules import Hidden, RuleError, hidden
from xformc.compiler.ops.elementwise import Add, Binary, Divide, Multiply, Scale, Shift
from xformc.compiler.ops.functions import Unary
from xformc.compiler.ops.layout import union
from xformc.compiler.ops.masks import MASKED, NEVER, filled
from xformc.compiler.spec import SpecError

CASES = {
    "divide": Case(Divide(), (("a", "b", "d"), ("b", "a"))),
    "shift": Case(Shift(-1.5), (("a", "b"),)),
    "product of all pairs": Case(Multiply(), (("batch", "t", "h", "k"), ("batch", "t", "h", "v"))),
    "sum of queries and keys": Case(Add(), (("batch", "q", "h"), ("batch", "s", "h"))),
}


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_op_is_the_same_in_torch_and_onnx(name: str, data: st.DataObject, tmp_path_factory) -> None:
    assert_same_everywhere(CASES[name], data, tmp_path_factory.mktemp("op"))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("Btd", "td", "Btd"),
        ("td", "Btd", "Btd"),
        ("Bthk", "Bthv", "Bthkv"),
        ("Btk", "Bsk", "Btsk"),
        ("hqs", "Bqs", "Bhqs"),
        ("ac", "cb", "acb"),
        ("d", "Bx", "Bdx"),
    ],
)
def test_union_keeps_the_first_order_and_the_batch_in_front(first: str, second: str, expected: str) -> None:
    axes = {name: Axis("batch" if name == "B" else name) for name in "Bacbdhkqstvx"}
    found = union(tuple(axes[name] for name in first), tuple(axes[name] for name in second))
    assert found == tuple(axes[name] for name in expected)


def test_elu_and_exp_are_the_functions() -> None:
    x = torch.tensor([[-1.0, 0.0, 2.0]])
    sizes = {"a": 1, "b": 3}
    elu, exp = (TorchModule(one_op(Case(Unary(name), (("a", "b"),)), sizes))(x) for name in ("elu", "exp"))
    torch.testing.assert_close(elu, torch.tensor([[np.exp(-1.0) - 1, 0.0, 2.0]], dtype=torch.float32))
    torch.testing.assert_close(exp, x.exp())


def test_hidden_keys_stay_hidden_only_where_they_do() -> None:
    builder = GraphBuilder("hidden")
    x = builder.input("x", Type("float32", (Axis("q"), Axis("k"))))
    cases: list[tuple[Op, tuple[Hidden, ...], Hidden]] = [
        (Divide(), ("zero", "open"), "zero"),
        (Divide(), ("open", "zero"), "large"),
        (Divide(), ("masked", "open"), "large"),
        (Shift(1.0), ("masked",), "masked"),
        (Shift(1e9), ("masked",), "large"),
        (Shift(1.0), ("zero",), "open"),
        (Scale(2.0), ("masked",), "masked"),
        (Scale(0.5), ("masked",), "faint"),
        (Scale(0.005), ("masked",), "low"),
        (Scale(0.5), ("faint",), "low"),
        (Scale(2.0), ("faint",), "faint"),
        (Scale(-1.0), ("masked",), "large"),
        (Scale(-1.0), ("open",), "open"),
        (Add(), ("masked", "open"), "masked"),
        (Add(), ("masked", "low"), "masked"),
        (Add(), ("masked", "large"), "large"),
        (Add(), ("faint", "masked"), "masked"),
        (Add(), ("faint", "low"), "low"),
        (Add(), ("low", "low"), "large"),
        (Scale(2.0), ("low",), "large"),
        (Binary("minus"), ("masked", "open"), "masked"),
        (Binary("minus"), ("masked", "masked"), "large"),
        (Binary("minimum"), ("masked", "open"), "masked"),
        (Binary("minimum"), ("faint", "open"), "faint"),
        (Binary("maximum"), ("masked", "zero"), "zero"),
        (Binary("maximum"), ("masked", "faint"), "faint"),
        (Binary("maximum"), ("zero", "low"), "open"),
        (Binary("maximum", -1e9), ("masked",), "low"),
        (Binary("power", -1.0), ("zero",), "large"),
        (Multiply(), ("zero", "masked"), "zero"),
        (Multiply(), ("zero", "large"), "large"),
        (Unary("exp"), ("masked",), "zero"),
        (Unary("relu"), ("faint",), "zero"),
        (Unary("exp"), ("zero",), "open"),
        (Unary("elu"), ("zero",), "zero"),
        (Unary("tanh"), ("large",), "open"),
        (Unary("relu"), ("large",), "large"),
        (Unary("relu"), ("low",), "open"),
        (Unary("square"), ("masked",), "large"),
        (Unary("reciprocal"), ("zero",), "large"),
    ]
    assert [filled("masked", number) for number in (NEVER, MASKED, 0.0, 1e9)] == ["masked", "low", "low", "large"]
    assert filled("faint", NEVER) == "faint"
    assert [filled("open", number) for number in (NEVER, 0.0, 1.0)] == ["low", "open", "open"]
    for op, held, expected in cases:
        builder.emit(op, [x] * len(held), "y")
        assert hidden.of(op)(op, builder.nodes[-1], held, frozenset({"k"})) == expected


def test_arithmetic_of_each_position_is_its_own_step(tmp_path: Path) -> None:
    steps = "{up: elu, one: {shift: 2}, grown: exp, sum: {plus: one}, ratio: {divide: one}, out: {times: x}}"
    assert_steps_are_the_training_form(language_graph(tmp_path, steps), tmp_path)


@pytest.mark.parametrize("step", ["plus", "times", "divide"])
def test_tokens_are_refused_at_their_step(tmp_path: Path, step: str) -> None:
    with pytest.raises(SpecError) as error:
        language_graph(tmp_path, f"{{vectors: relu, both: {{{step}: text}}}}")
    (problem,) = error.value.problems
    assert problem.message == "needs float32 values, found text: int64[batch, text]"
    assert (problem.hint, problem.span.line) == ("embed the tokens first", 6)


def test_two_sizes_of_one_axis_are_refused() -> None:
    builder = GraphBuilder("sizes")
    a, b = (builder.input(f"x{size}", Type("float32", (Axis("d", size),))) for size in (2, 3))
    with pytest.raises(RuleError, match="axis d has two sizes: 2 and 3"):
        builder.emit(Divide(), [a, b], "y")
