"""Constants of a spec: they are no parameters, and each step has them without an input."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from one_op import Case, one_op, run_onnx
from steps import assert_steps_are_the_training_form, language_graph

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.rules import RuleError
from xformc.compiler.ops.constants import Constant
from xformc.compiler.spec import SpecError

CASES = {
    "filled": (Constant(("a", "b"), (2, 3), (0.5,)), [[0.5] * 3] * 2),
    "listed": (Constant(("a", "b"), (2, 2), (1.0, 2.0, 3.0, 4.0)), [[1, 2], [3, 4]]),
    "scalar": (Constant((), (), (2.0,)), 2.0),
}


@pytest.mark.parametrize("name", CASES)
def test_constant_is_the_same_in_torch_and_onnx(name: str, tmp_path: Path) -> None:
    op, expected = CASES[name]
    graph = one_op(Case(op, ()), {})
    module = TorchModule(graph)
    assert module().tolist() == expected
    for target in ("portable", "cpu"):
        (found,) = run_onnx(graph, module, [], tmp_path, target=target)
        np.testing.assert_array_equal(found, np.array(expected, np.float32))


def test_constant_is_neither_counted_nor_stored_and_follows_its_module() -> None:
    module = TorchModule(one_op(Case(CASES["listed"][0], ()), {}))
    assert not [*module.parameters()]
    assert not module.state_dict()
    assert copy.deepcopy(module).to(torch.float64)().dtype == torch.float64
    assert module().dtype == torch.float32


def test_steps_have_constants_without_an_input(tmp_path: Path) -> None:
    steps = "{ramp: {indices: d_model}, part: {times: 0.1}, half: {constant: {axes: d_model, value: 1 / 2}},"
    steps += " sum: {plus: x}, product: {times: half}, other: {plus: part}}"
    decoder = assert_steps_are_the_training_form(language_graph(tmp_path, steps), tmp_path)
    assert [str(value.type) for value in decoder.constants] == ["float32[d_model=6]"]


def test_nested_lists_are_read_in_order(tmp_path: Path) -> None:
    steps = "{two: {constant: {axes: [half, d_k], value: [[1, 2], [3, d_model / 2], 5]}}, sum: {times: x},"
    steps += " all: {sum: {over: half}}, every: {sum: {over: d_k}}}"
    with pytest.raises(SpecError) as error:
        language_graph(tmp_path, steps, "half: 2, d_k: 2")
    assert error.value.problems[0].message == "constant: needs 4 numbers or one, found 5"
    graph = language_graph(tmp_path, steps.replace(", 5]", "]"), "half: 2, d_k: 2")
    (op,) = (node.op for node in graph.nodes if isinstance(node.op, Constant))
    assert op.values == (1.0, 2.0, 3.0, 3.0)


REFUSED = {
    "[constant: {axes: d_model, value: []}]": "must be a number or a list of numbers, found an empty list",
    "[indices: many]": "a constant has at most 65,536 numbers, found 65,537",
    "[constant: {axes: d_model, value: [true]}]": "must be a number or arithmetic on sizes, found true",
}


@pytest.mark.parametrize("steps", REFUSED)
def test_wrong_constants_are_refused(tmp_path: Path, steps: str) -> None:
    with pytest.raises(SpecError) as error:
        language_graph(tmp_path, steps, "many: 100000")
    assert error.value.problems[0].message == REFUSED[steps]


def test_the_count_is_checked() -> None:
    with pytest.raises(RuleError, match="needs 6 numbers or one, found 2"):
        one_op(Case(Constant(("a", "b"), (2, 3), (1.0, 2.0)), ()), {})
