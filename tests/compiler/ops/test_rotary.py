"""Rotary positions: pairs, parts and scalings are their formulas, in float64 and at Hugging Face."""

import importlib
from dataclasses import replace
from math import ceil, floor, log, pi
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from one_op import Case, assert_same_everywhere, one_op
from steps import assert_steps_are_the_training_form, language_graph

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph import text
from xformc.compiler.graph.graph import Graph
from xformc.compiler.ops.fused_attention import Attention
from xformc.compiler.ops.rotary import FUNCTIONS, Angles, Rotate
from xformc.compiler.spec import SpecError

WIDTH, BASE, LENGTH = 16, 500000.0, 64
SCALED: dict[str, tuple[float | None, ...]] = {
    "linear": (4.0,),
    "ntk": (4.0,),
    "dynamic": (4.0, 3.0),
    "yarn": (4.0, LENGTH, 8.0, 2.0, None),
    "llama3": (8.0, LENGTH, 1.0, 4.0),
}
AXIS = "d/pairs"
ANGLES = {
    "all": Angles(AXIS, WIDTH, "Cos"),
    "sines": Angles(AXIS, WIDTH, "Sin", 100.0),
    **{name: Angles(AXIS, WIDTH, "Cos", BASE, name, numbers) for name, numbers in SCALED.items()},
    "yarn with a factor": Angles(AXIS, WIDTH, "Sin", scaling="yarn", numbers=(4.0, LENGTH, 8.0, 2.0, 0.5)),
}


@pytest.mark.parametrize("name", ANGLES)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_angles_are_the_same_in_torch_and_onnx(name: str, data: st.DataObject, tmp_path_factory) -> None:
    assert_same_everywhere(Case(ANGLES[name], (("t",),), dtypes=("int64",)), data, tmp_path_factory.mktemp("op"), {})


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("pairs", [WIDTH // 2, 2])
@pytest.mark.parametrize("axes", [("a", "t", "h", "d"), ("h", "a", "t", "d")])
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_rotate_is_the_same_in_torch_and_onnx(
    axes: tuple[str, ...], halves: bool, pairs: int, data: st.DataObject, tmp_path_factory
) -> None:
    case = Case(Rotate(halves), (axes, ("t", "k"), ("t", "k")))
    assert_same_everywhere(case, data, tmp_path_factory.mktemp("op"), {"d": WIDTH, "k": pairs})


def of(op: Angles, function: str, positions: np.ndarray) -> torch.Tensor:
    """A function of the angles at positions."""
    module = TorchModule(one_op(Case(replace(op, function=function), (("t",),), dtypes=("int64",)), {"t": 1}))
    return module(torch.from_numpy(positions))


def rotated(op: Angles, x: np.ndarray, *, halves: bool = True) -> np.ndarray:
    """What `rope` makes of x [positions, width]."""
    cos, sin = (of(op, function, np.arange(len(x))) for function in FUNCTIONS)
    sizes = {"t": 1, "d": x.shape[-1], "k": op.width // 2}
    module = TorchModule(one_op(Case(Rotate(halves), (("t", "d"), ("t", "k"), ("t", "k"))), sizes))
    return module(torch.from_numpy(x.astype(np.float32)), cos, sin).numpy()


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("part", [None, 6])
def test_pairs_are_multiplied_by_complex_numbers(halves: bool, part: int | None) -> None:
    x = np.random.default_rng(0).standard_normal((9, WIDTH))
    width = part or WIDTH
    pairs = np.arange(width).reshape(2, -1) if halves else np.arange(width).reshape(-1, 2).T
    angles = np.outer(np.arange(9), 300.0 ** (-2 * np.arange(width // 2) / width))
    turned = (x[:, pairs[0]] + 1j * x[:, pairs[1]]) * np.exp(1j * angles)
    expected = x.copy()
    expected[:, pairs[0]], expected[:, pairs[1]] = turned.real, turned.imag
    np.testing.assert_allclose(rotated(Angles(AXIS, width, "Cos", 300.0), x, halves=halves), expected, atol=1e-5)


def test_products_of_turned_vectors_depend_on_their_distance_alone() -> None:
    query, key = np.random.default_rng(0).standard_normal((2, WIDTH))

    def product(m: int, n: int) -> float:
        x = np.zeros((10, WIDTH))
        x[m], x[n] = query, key
        found = rotated(Angles(AXIS, WIDTH, "Cos"), x)
        return float(found[m] @ found[n])

    assert product(3, 1) == pytest.approx(product(9, 7), abs=1e-4)
    assert abs(product(3, 1) - product(3, 2)) > 1e-2


def test_rotation_is_the_papers() -> None:
    found = rotated(Angles(AXIS, 4, "Cos"), np.array([[1.0, 0.0, 0.0, 1.0]] * 3), halves=False)
    expected = [np.cos(2), np.sin(2), -np.sin(0.02), np.cos(0.02)]
    np.testing.assert_allclose(found[2], expected, atol=1e-6)


def plain() -> np.ndarray:
    return BASE ** (-2 * np.arange(WIDTH // 2) / WIDTH)


def formulas() -> dict[str, np.ndarray]:
    """The frequencies of each scaling, by its formula in NumPy."""
    first, last = (WIDTH * log(LENGTH / (turns * 2 * pi)) / (2 * log(BASE)) for turns in (8, 2))
    ramp = ((np.arange(WIDTH // 2) - max(floor(first), 0)) / (ceil(last) - max(floor(first), 0))).clip(0, 1)
    turns = LENGTH * plain() / (2 * pi)
    kept = ((turns - 1) / (4 - 1)).clip(0, 1)
    return {
        "linear": plain() / 4,
        "ntk": (BASE * 4 ** (WIDTH / (WIDTH - 2))) ** (-2 * np.arange(WIDTH // 2) / WIDTH),
        "dynamic": plain(),
        "yarn": plain() * (1 - ramp) + plain() / 4 * ramp,
        "llama3": plain() * kept + plain() / 8 * (1 - kept),
    }


@pytest.mark.parametrize("name", SCALED)
def test_scaling_is_its_formula(name: str) -> None:
    found, factor = ANGLES[name].frequencies()
    np.testing.assert_allclose(found, formulas()[name], rtol=1e-12)
    assert factor == (0.1 * log(4) + 1 if name == "yarn" else 1)


def test_dynamic_scaling_rotates_each_position_as_the_last_of_a_text() -> None:
    x = np.random.default_rng(0).standard_normal((9, WIDTH))
    found = rotated(ANGLES["dynamic"], x)
    for position in range(9):
        longer = 4 * max(position + 1, 3) / 3 - (4 - 1)
        base = BASE * longer ** (WIDTH / (WIDTH - 2))
        alone = rotated(Angles(AXIS, WIDTH, "Cos", base), x[: position + 1])
        np.testing.assert_allclose(found[position], alone[-1], atol=1e-5)


def test_ntk_divides_the_lowest_frequency_by_its_factor() -> None:
    found = formulas()["ntk"]
    assert found[0] == 1
    np.testing.assert_allclose(found[-1], plain()[-1] / 4)


HUGGING_FACE: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0},
    "yarn": {"factor": 4.0, "beta_fast": 8.0, "beta_slow": 2.0},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
}


@pytest.mark.parametrize("name", HUGGING_FACE)
def test_scaling_is_that_of_transformers(name: str) -> None:
    pytest.importorskip("transformers", reason="the peer is not installed")
    functions = importlib.import_module("transformers.modeling_rope_utils").ROPE_INIT_FUNCTIONS
    numbers = {"original_max_position_embeddings": LENGTH} | HUGGING_FACE[name]
    expected, factor = functions[name](config_of(name, numbers, 4 * LENGTH), "cpu")
    x = np.random.default_rng(0).standard_normal((LENGTH, WIDTH)).astype(np.float32)
    angles = torch.outer(torch.arange(LENGTH).float(), expected).repeat(1, 2)
    halves = torch.from_numpy(np.concatenate((-x[:, WIDTH // 2 :], x[:, : WIDTH // 2]), -1))
    wanted = factor * (torch.from_numpy(x) * angles.cos() + halves * angles.sin())
    np.testing.assert_allclose(rotated(ANGLES[name], x), wanted, atol=1e-4)


def config_of(name: str, numbers: dict[str, Any], positions: int) -> SimpleNamespace:
    """A configuration of transformers with such rotary positions."""
    return SimpleNamespace(
        rope_parameters={"rope_type": name, "rope_theta": BASE} | numbers,
        max_position_embeddings=positions,
        head_dim=WIDTH,
        hidden_size=WIDTH,
        num_attention_heads=1,
        standardize_rope_params=lambda: None,
    )


def test_dynamic_scaling_is_that_of_transformers_token_by_token() -> None:
    pytest.importorskip("transformers", reason="the peer is not installed")
    functions = importlib.import_module("transformers.modeling_rope_utils").ROPE_INIT_FUNCTIONS
    config = config_of("dynamic", {"factor": 4.0}, 3)
    x = np.random.default_rng(0).standard_normal((9, WIDTH)).astype(np.float32)
    found = rotated(ANGLES["dynamic"], x)
    for position in range(9):
        frequencies, _ = functions["dynamic"](config, "cpu", seq_len=position + 1)
        angles = np.concatenate([position * frequencies.numpy()] * 2)
        halves = np.concatenate((-x[position, WIDTH // 2 :], x[position, : WIDTH // 2]))
        expected = x[position] * np.cos(angles) + halves * np.sin(angles)
        np.testing.assert_allclose(found[position], expected, atol=1e-5)


ROPES = [
    "{base: 500, part: 2}",
    "{halves: true}",
    "{halves: true, part: d_k / 2, scaling: yarn, factor: 4, original_positions: 8}",
    "{scaling: llama3, factor: 8, original_positions: 8}",
    "{scaling: dynamic, factor: 2, original_positions: 3}",
]


def attention_graph(folder: Path, rope: str) -> Graph:
    places = "place: position, " if "at:" in rope else ""
    places += "later: {shift: 7}, " if "later" in rope else ""
    steps = f"""{{{places}query: {{linear: {{from: x, to: [heads, d_k]}}}},
      key: {{linear: {{from: x, to: [heads, d_k]}}}},
      turned: {{rope: {rope[:-1]}, from: query}}}}, seen: {{rope: {rope[:-1]}, from: key}}}}, keys: as_keys,
      values: {{as_keys: {{from: key}}}}, scores: {{contract: {{from: turned, by: keys, over: d_k}}}},
      hidden: {{mask: {{causal: true}}}}, weights: {{softmax: keys}}, mixed: {{contract: {{by: values, over: keys}}}},
      output: {{linear: {{over: [heads, d_k], to: d_model}}}}}}"""
    return language_graph(folder, " ".join(steps.split()), "heads: 2, d_k: 4")


@pytest.mark.parametrize("rope", [*ROPES, "{halves: true, at: place}", "{at: later}"])
def test_rotated_attention_is_fused_and_its_own_step(tmp_path: Path, rope: str) -> None:
    graph = attention_graph(tmp_path, rope)
    assert [node.op.kind for node in graph.nodes if isinstance(node.op, Attention)] == ["attention"]
    assert text.parse(text.format(graph)) == graph
    assert_steps_are_the_training_form(graph, tmp_path)


def test_given_positions_rotate_as_they_say(tmp_path: Path) -> None:
    """Those of the vectors change nothing, nor do later ones of queries and keys alike."""
    ids = torch.randint(4, 9, (2, 6), generator=torch.Generator().manual_seed(1))
    ropes = ("{base: 500}", "{base: 500, at: place}", "{base: 500, at: later}", "{base: 600, at: place}")
    usual, same, later, other = (TorchModule(attention_graph(tmp_path, rope), seed=3).eval()(ids) for rope in ropes)
    assert torch.equal(usual, same)
    torch.testing.assert_close(later, usual, rtol=0, atol=1e-5)
    assert (other - usual).abs().max() > 1e-4


REFUSED = {
    "{at: x}": "'at' needs numbers with axes of start: float32[batch, text, d_model=6], found start: float32[batch, "
    "text, d_model=6]",
    "{base: 1}": "the base must be greater than 1 and at most 1e+15, found 1",
    "{part: 3}": "part must be an even number from 2 to d_model=6, found 3",
    "{part: 8}": "part must be an even number from 2 to d_model=6, found 8",
    "{scaling: longrope}": "'scaling' must be linear, ntk, dynamic, yarn, llama3, found 'longrope'",
    "{scaling: dynamic, factor: 2}": "the scaling dynamic needs original_positions",
    "{scaling: dynamic, factor: 2, original_positions: 9, part: 2}": "the scaling dynamic needs at least 4 rotated "
    "numbers",
    "{factor: 2}": "factor has no effect without a scaling",
    "{scaling: linear, factor: 2, beta_fast: 3}": "beta_fast has no effect with the scaling linear",
    "{scaling: yarn, factor: 2}": "the scaling yarn needs original_positions",
    "{scaling: llama3}": "the scaling llama3 needs factor and original_positions",
    "{scaling: linear, factor: 0.5}": "factor must be at least 1, found 0.5",
    "{scaling: ntk, factor: 2, part: 2}": "the scaling ntk needs at least 4 rotated numbers",
    "{scaling: yarn, factor: 2, original_positions: 2.5}": "original_positions must be a whole number, found 2.5",
    "{scaling: yarn, factor: 2, original_positions: 9, beta_slow: 0}": "beta_slow must be from 1e-09 to 1e+09, found 0",
    "{scaling: yarn, factor: 2, original_positions: 9, beta_slow: 40}": "beta_fast must be greater than beta_slow, "
    "which is 40, found 32",
    "{scaling: llama3, factor: 2, original_positions: 9, high_frequency_factor: 1}": "high_frequency_factor must be "
    "greater than low_frequency_factor, which is 1, found 1",
}


@pytest.mark.parametrize("rope", REFUSED)
def test_wrong_rotation_is_refused(tmp_path: Path, rope: str) -> None:
    with pytest.raises(SpecError) as error:
        language_graph(tmp_path, f"[rope: {rope}]")
    (problem,) = error.value.problems
    assert problem.message == REFUSED[rope]
    assert problem.span.line == 6
