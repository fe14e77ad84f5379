"""Functions of one value: their formulas, what they keep hidden, and their padding."""

from math import erf, exp, inf, log, pi, sqrt, tanh
from pathlib import Path

import numpy as np
import pytest
import torch
from one_op import Case, one_op, run_onnx
from steps import assert_padding_does_not_matter, assert_steps_are_the_training_form, language_graph, tagging_graph

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph_builder import GraphBuilder
from xformc.compiler.graph.rules import Hidden, hidden
from xformc.compiler.ops.functions import FUNCTIONS, Unary
from xformc.compiler.ops.masks import MASKED, NEVER
from xformc.compiler.spec import SpecError

FORMULAS = {
    "gelu_tanh": lambda x: x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2,
    "relu6": lambda x: min(max(x, 0), 6),
    "hard_sigmoid": lambda x: min(max(x + 3, 0), 6) / 6,
    "softplus": lambda x: log(1 + exp(x)),
    "erf": erf,
    "log": log,
    "sqrt": sqrt,
    "rsqrt": lambda x: 1 / sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "square": lambda x: x * x,
    "sign": lambda x: 1.0,
    "floor": np.floor,
}


@pytest.mark.parametrize("name", FORMULAS)
def test_function_is_its_formula_in_torch_and_onnx(name: str, tmp_path: Path) -> None:
    graph = one_op(Case(Unary(name), (("a",),)), {})
    module, x = TorchModule(graph), np.array([0.25, 1.0, 7.5], np.float32)
    expected = [FORMULAS[name](float(value)) for value in x]
    np.testing.assert_allclose(module(torch.from_numpy(x)), expected, rtol=1e-5)
    for target in ("portable", "cpu", "native"):
        (found,) = run_onnx(graph, module, [x], tmp_path, target=target)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_vanishes_is_exactly_zero(name: str) -> None:
    builder = GraphBuilder("hidden")
    builder.emit(Unary(name), [builder.input("x", Type("float32", (Axis("k"),)))], "y")
    module, op = TorchModule(one_op(Case(Unary(name), (("a",),)), {})), Unary(name)
    cases: list[tuple[Hidden, list[float]]] = [("zero", [0.0]), ("masked", [MASKED, NEVER])]
    for held, values in cases:
        vanishes = hidden.of(op)(op, builder.nodes[-1], (held,), frozenset({"k"})) == "zero"
        found = module(torch.tensor(values))
        assert vanishes == bool((found == 0).all()), f"{name} of {held} is {found.tolist()}"


@pytest.mark.parametrize("step", ["log", "rsqrt", "reciprocal", "sqrt", "{power: 0.5}", "{divide: x}"])
def test_padding_without_a_finite_value_reaches_no_other_position(tmp_path: Path, step: str) -> None:
    attention = "keys: {as_keys: {from: found}}, scores: {contract: {from: x, by: keys, over: d_model}}, masked: mask"
    attention += ", weights: {softmax: keys}, mixed: {contract: {by: keys, over: keys}}"
    steps = f"{{real: abs, empty: zero_padding, found: {step}, {attention}}}"
    assert_padding_does_not_matter(tagging_graph(tmp_path, steps), tmp_path)


def test_padding_has_finite_gradients(tmp_path: Path) -> None:
    steps = "{real: abs, empty: zero_padding, found: log, small: {rsqrt: {from: empty}}, sum: {plus: {by: found}}}"
    module = TorchModule(tagging_graph(tmp_path, steps))
    tokens = torch.tensor([[4, 5, 0], [6, 7, 8]])
    module(tokens)[tokens > 0].sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in module.parameters())


def test_functions_of_each_position_are_their_own_step(tmp_path: Path) -> None:
    steps = "{size: abs, more: {plus: 1}, small: log, root: {sqrt: {from: more}}, sum: {plus: small}}"
    assert not assert_steps_are_the_training_form(language_graph(tmp_path, steps), tmp_path).states


def test_a_function_in_a_cell_needs_no_mask(tmp_path: Path) -> None:
    cell = "{size: abs, more: {plus: 1}, small: log, sum: {plus: sum}}"
    steps = f"[recurrence: {{state: {{sum: d_model}}, cell: {{do: {cell}}}}}]"
    assert_steps_are_the_training_form(language_graph(tmp_path, steps), tmp_path)


def test_an_unknown_approximation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        language_graph(tmp_path, "[gelu: {approximate: sigmoid}]")
    assert error.value.problems[0].message == "'approximate' must be none or tanh, found 'sigmoid'"


def test_log_of_zero_is_left_to_the_user(tmp_path: Path) -> None:
    module = TorchModule(one_op(Case(Unary("log"), (("a",),)), {}))
    assert module(torch.tensor([0.0])).item() == -inf
