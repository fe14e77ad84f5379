"""Project and Embed against the same computations in numpy."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.runtime.kernel_session import Array, kernel_session, node, run_node

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
PANEL = 32
PRECISIONS = ["float32", "float16", "bfloat16", "int8", "int4"]
INTEGERS = ("int8", "int4")
ACTIVATIONS = ["none", "relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"]


pytestmark = pytest.mark.usefixtures("isa")


def in_panels(values: Array, fill: int, group: int) -> Array:
    """[N, K] as [ceil(N / 32), ceil(K / group), 32, group]."""
    outputs, depth = values.shape
    panels, steps = -(-outputs // PANEL), -(-depth // group)
    padded = np.full((panels * PANEL, steps * group), fill, values.dtype)
    padded[:outputs, :depth] = values
    return np.ascontiguousarray(padded.reshape(panels, PANEL, steps, group).transpose(0, 2, 1, 3))


@dataclass(frozen=True)
class Weight:
    """A weight as it is stored, and what it stands for: float64 [N, K]."""

    stored: list[Array]
    value: F64


def store(weight: F32, precision: str) -> Weight:
    """The inputs that a weight [N, K] makes, by docs/kernels.md."""
    if precision == "int8":
        scale = (np.abs(weight).max(axis=1) / 127).astype(np.float32)
        q = np.rint(weight / scale[:, None]).clip(-127, 127)
        panels = in_panels((q + 128).astype(np.uint8), 128, 4)
        return Weight([panels, scale], q * scale.astype(np.float64)[:, None])
    if precision == "int4":
        return store_int4(weight)
    if precision == "float32":
        return Weight([in_panels(weight, 0, 1)[..., 0]], weight.astype(np.float64))
    if precision == "float16":
        half = weight.astype(np.float16)
        return Weight([in_panels(half.view(np.uint16), 0, 1)[..., 0]], half.astype(np.float64))
    upper = brain(weight)
    value = (upper.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return Weight([in_panels(upper, 0, 2)], value)


def brain(values: F32) -> NDArray[np.uint16]:
    """The bits of the nearest numbers in bfloat16."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def store_int4(weight: F32) -> Weight:
    """A scale for each 32 inputs of an output; two inputs a byte, four apart."""
    outputs, depth = weight.shape
    panels, groups = -(-outputs // PANEL), -(-depth // 32)
    padded = np.zeros((panels * PANEL, groups * 32), np.float32)
    padded[:outputs, :depth] = weight
    blocks = padded.reshape(panels, PANEL, groups, 32)
    scale = (np.abs(blocks).max(-1) / 7).astype(np.float32)
    q = np.rint(np.divide(blocks, scale[..., None], out=np.zeros_like(blocks), where=scale[..., None] > 0))
    stored = np.zeros((panels, groups, 4, PANEL, 4), np.uint8)
    for place in range(32):
        pair, half, byte = place // 8, place // 4 % 2, place % 4
        number = (q[..., place] + 8).astype(np.uint8).transpose(0, 2, 1)
        stored[:, :, pair, :, byte] |= number << (4 * half)
    value = (q * scale[..., None].astype(np.float64)).reshape(panels * PANEL, -1)[:outputs, :depth]
    return Weight([stored, np.ascontiguousarray(scale.transpose(0, 2, 1))], value)


def as_multiplied(x: F32, precision: str) -> F64:
    if precision == "bfloat16":
        return (brain(x).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return rounded_rows(x) if precision in INTEGERS else x.astype(np.float64)


def rounded_rows(x: F32) -> F64:
    """x as integers take it: whole multiples of a scale for each row."""
    scale = (np.abs(x).max(axis=1, keepdims=True) / np.float32(127)).astype(np.float32)
    q = np.rint(np.divide(x, scale, out=np.zeros_like(x), where=scale > 0))
    return q * scale.astype(np.float64)


def activated(y: F64, name: str) -> F64:
    if name == "relu":
        return np.maximum(y, 0)
    if name == "gelu":
        return y * 0.5 * (1 + np.vectorize(math.erf, otypes=[np.float64])(y / math.sqrt(2)))
    if name == "gelu_tanh":
        return y * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
    if name == "silu":
        return y / (1 + np.exp(-y))
    if name == "sigmoid":
        return 1 / (1 + np.exp(-y))
    return np.tanh(y) if name == "tanh" else y


@dataclass(frozen=True)
class Case:
    """One Project: x is [rows, depth] unless `x_shape` says otherwise."""

    rows: int
    depth: int
    parts: tuple[tuple[int, ...], ...]
    precision: str = "float32"
    bias: bool = False
    residual: bool = False
    activation: str = "none"
    norm: str = "none"
    x_shape: tuple[int, ...] = ()
    axes: int = 1
    seed: int = 0


@dataclass(frozen=True)
class Problem:
    """The inputs and attributes of a Project, and its float64 outputs."""

    inputs: list[Array | None]
    attributes: dict[str, Any]
    expected: list[F64]


def make(case: Case) -> Problem:
    """Random numbers for a case."""
    random = np.random.default_rng(case.seed)

    def normal(*shape: int) -> F32:
        return random.standard_normal(shape).astype(np.float32)

    x_shape = case.x_shape or (case.rows, case.depth)
    leading = x_shape[: len(x_shape) - case.axes]
    x = normal(case.rows, case.depth)
    sizes = [math.prod(part) for part in case.parts]
    residual = normal(case.rows, sizes[0]) if case.residual else None
    gain = normal(sizes[0]) if case.norm != "none" else None
    offset = normal(sizes[0]) if case.norm == "layer" else None
    inputs: list[Array | None] = [x.reshape(x_shape), None, gain, offset]
    if residual is not None:
        inputs[1] = residual.reshape(*leading, *case.parts[0])
    expected: list[F64] = []
    used = as_multiplied(x, case.precision)
    for part, size in zip(case.parts, sizes, strict=True):
        weight = store(normal(size, case.depth) / np.float32(math.sqrt(case.depth)), case.precision)
        bias = normal(size) if case.bias else None
        inputs += [*weight.stored, *([] if bias is None else [bias])]
        y = used @ weight.value.T
        y = activated(y if bias is None else y + bias, case.activation)
        y = y if residual is None else y + residual
        expected.append(normalized(y, case.norm, gain, offset).reshape(*leading, *part))
    attributes: dict[str, Any] = {
        "depth": case.axes,
        "parts": len(case.parts),
        "ranks": [len(part) for part in case.parts],
        "sizes": [size for part in case.parts for size in part],
        "bias": int(case.bias),
        "precision": case.precision,
        "activation": case.activation,
        "norm": case.norm,
        "epsilon": 1e-5,
    }
    return Problem(inputs, attributes, expected)


def normalized(y: F64, norm: str, gain: F32 | None, offset: F32 | None) -> F64:
    if gain is None:
        return y
    centred = y - y.mean(axis=1, keepdims=True) if norm == "layer" else y
    result = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5) * gain
    return result if offset is None else result + offset


def project(problem: Problem, threads: int = 1) -> list[Array]:
    outputs = [np.float32] * len(problem.expected)
    return run_node("Project", problem.inputs, outputs, threads=threads, **problem.attributes)


def check(case: Case, tolerance: float = 2e-5) -> None:
    problem = make(case)
    for found, expected in zip(project(problem), problem.expected, strict=True):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5, 31, 64, 130, 513])
def test_project_takes_every_depth(precision: str, depth: int) -> None:
    check(Case(7, depth, ((40,),), precision))


def test_small_numbers_are_there_where_a_process_flushes_denormals() -> None:
    """As training does: of normal weights in float16 some are subnormal in it."""
    torch = pytest.importorskip("torch", reason="only PyTorch can flush them here")
    torch.set_flush_denormal(True)
    try:
        check(Case(7, 513, ((40,),), "float16"))
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("outputs", [1, 15, 16, 17, 31, 32, 33, 63, 64, 100, 257])
def test_project_takes_every_number_of_outputs(precision: str, outputs: int) -> None:
    check(Case(5, 36, ((outputs,),), precision, bias=True, residual=True))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_project_takes_every_number_of_rows(precision: str) -> None:
    for rows in (0, *range(1, 71), 300):
        check(Case(rows, 20, ((45,),), precision, bias=True, norm="layer", seed=rows))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [False, True])
def test_project_activates_before_the_residual(precision: str, activation: str, bias: bool) -> None:
    check(Case(14, 48, ((70,),), precision, bias, residual=True, activation=activation))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_are_right_from_end_to_end(activation: str) -> None:
    x = np.concatenate([np.linspace(-100, 100, 2001), np.linspace(-1, 1, 2001)]).astype(np.float32)
    identity = store(np.ones((1, 1), np.float32), "float32")
    problem = make(Case(len(x), 1, ((1,),), activation=activation))
    problem.inputs[0] = x[:, None]
    problem.inputs[4:] = identity.stored
    with np.errstate(over="ignore"):
        expected = activated(x.astype(np.float64), activation)
    np.testing.assert_allclose(project(problem)[0][:, 0], expected, rtol=3e-7, atol=2e-7)


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("outputs", [1, 5, 16, 30, 100, 512])
@pytest.mark.parametrize("residual", [False, True])
def test_project_normalizes_finished_rows(norm: str, outputs: int, residual: bool) -> None:
    check(Case(13, 24, ((outputs,),), bias=True, residual=residual, norm=norm), tolerance=1e-4)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("bias", [False, True])
def test_project_computes_several_parts_of_any_axes(precision: str, bias: bool) -> None:
    parts = ((2, 3, 8), (), (33,), (4, 5))
    check(Case(6, 40, parts, precision, bias, x_shape=(2, 1, 3, 5, 8), axes=2))


def test_project_of_a_single_row_without_axes() -> None:
    check(Case(1, 40, ((7,),), x_shape=(40,)))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("precision", ["float32", "int8", "bfloat16"])
def test_project_of_many_rows_and_panels(precision: str, threads: int) -> None:
    problem = make(Case(700, 200, ((300,), (1000,)), precision, bias=True, activation="relu"))
    for found, expected in zip(project(problem, threads), problem.expected, strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("norm", ["none", "layer"])
@pytest.mark.parametrize("depth", [7, 300, 700])
def test_rows_are_the_same_to_the_bit_in_every_batch(precision: str, norm: str, depth: int) -> None:
    case = Case(130, depth, ((100,),), precision, bias=True, residual=True, activation="gelu", norm=norm)
    problem = make(case)
    whole = project(problem)[0]
    x, residual = cast(Array, problem.inputs[0]), cast(Array, problem.inputs[1])
    assert (project(problem, threads=2)[0] == whole).all()
    random = np.random.default_rng(1)
    for rows in (1, 2, 3, 5, 6, 11, 12, 13, 23, 25, 64, 129):
        chosen = random.choice(case.rows, rows, replace=False)
        inputs: list[Array | None] = [x[chosen], residual[chosen], *problem.inputs[2:]]
        assert (project(replace(problem, inputs=inputs))[0] == whole[chosen]).all(), rows


def with_constants(problem: Problem) -> Array:
    """Project, whose weights and all else but x are constants of the model."""
    constants = {f"c{i}": value for i, value in enumerate(problem.inputs[1:]) if value is not None}
    names = ["" if value is None else f"c{i}" for i, value in enumerate(problem.inputs[1:])]
    one = node("Project", ["x", *names], ["y"], **problem.attributes)
    session = cast(Any, kernel_session([one], {"x": np.float32}, {"y": np.float32}, constants))
    return session.run(None, {"x": problem.inputs[0]})[0]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("depth", [7, 64])
def test_constants_give_what_other_inputs_give(precision: str, depth: int) -> None:
    problem = make(Case(9, depth, ((40,),), precision, bias=True, residual=True, norm="layer"))
    assert (with_constants(problem) == project(problem)[0]).all()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_constants_that_do_not_fit_are_refused(precision: str) -> None:
    problem = make(Case(9, 64, ((40,),), precision, bias=True))
    weight = cast(Array, problem.inputs[4])
    for wrong in (weight[:1], weight[:, :-1], weight[..., :1], weight.astype(np.float64)):
        inputs = [*problem.inputs[:4], wrong, *problem.inputs[5:]]
        with pytest.raises(Exception, match=r"the weight's (panels|element type)"):
            with_constants(replace(problem, inputs=inputs))
    with pytest.raises(Exception, match="bias needs one number for each output"):
        with_constants(replace(problem, inputs=[*problem.inputs[:-1], np.zeros(39, np.float32)]))


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_one_session_serves_several_callers_at_once(precision: str) -> None:
    case = Case(40, 300, ((100,),), precision, norm="layer")
    problem = make(case)
    x = np.random.default_rng(2).standard_normal((20, case.rows, case.depth)).astype(np.float32)
    constants = {f"c{i}": value for i, value in enumerate(problem.inputs[2:]) if value is not None}
    one = node("Project", ["x", "", *constants], ["y"], **problem.attributes)
    session = cast(Any, kernel_session([one], {"x": np.float32}, {"y": np.float32}, constants, threads=2))

    def run(value: Array) -> Array:
        return session.run(None, {"x": value})[0]

    expected = [run(value) for value in x]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(run, [*x] * 5))
    for i, value in enumerate(found):
        assert (value == expected[i % len(x)]).all()


def test_int8_sums_are_exact() -> None:
    x = np.full((3, 65536), 127, np.float32)
    problem = make(Case(3, 65536, ((2,),), "int8"))
    q = np.array([[127], [-127]]).repeat(65536, 1)
    problem.inputs[0] = x
    problem.inputs[4:] = [in_panels((q + 128).astype(np.uint8), 128, 4), np.ones(2, np.float32)]
    assert project(problem)[0].tolist() == [[127.0 * 127 * 65536, -127.0 * 127 * 65536]] * 3


@pytest.mark.parametrize("precision", INTEGERS)
def test_rows_of_zeros_give_zeros(precision: str) -> None:
    problem = make(Case(5, 12, ((3,),), precision))
    cast(Array, problem.inputs[0])[2] = 0
    result = project(problem)[0]
    assert (result[2] == 0).all() and (result[3] != 0).all()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_is_not_a_number_is_not_lost(precision: str) -> None:
    problem = make(Case(9, 20, ((40,),), precision, activation="relu"))
    cast(Array, problem.inputs[0])[4, 3] = np.nan
    result = project(problem)[0]
    assert np.isnan(result[4]).all() and np.isfinite(np.delete(result, 4, 0)).all()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("vocabulary", "width"), [(1, 1), (33, 5), (100, 70), (64, 128)])
def test_embed_reads_rows_of_the_table(precision: str, vocabulary: int, width: int) -> None:
    random = np.random.default_rng(0)
    weight = store(random.standard_normal((vocabulary, width)).astype(np.float32), precision)
    ids = random.integers(0, vocabulary, (2, 3, 7))
    inputs: list[Array | None] = [ids, *weight.stored]
    found = run_node("Embed", inputs, [np.float32], precision=precision, width=width, factor=2.5)[0]
    assert found.shape == (2, 3, 7, width)
    np.testing.assert_allclose(found, 2.5 * weight.value[ids], rtol=2e-7)


def test_embed_reads_every_half(monkeypatch: pytest.MonkeyPatch) -> None:
    bits = np.arange(65536, dtype=np.uint16)
    for precision, panels, expected in (
        ("float16", in_panels(bits[None], 0, 1)[..., 0], bits.view(np.float16).astype(np.float32)),
        ("bfloat16", in_panels(bits[None], 0, 2), (bits.astype(np.uint32) << 16).view(np.float32)),
    ):
        inputs: list[Array | None] = [np.array([0]), panels]
        found = run_node("Embed", inputs, [np.float32], precision=precision, width=65536, factor=1.0)[0][0]
        np.testing.assert_array_equal(found, expected)


def test_embed_computes_many_rows_in_two_threads() -> None:
    weight = store(np.random.default_rng(0).standard_normal((500, 64)).astype(np.float32), "float32")
    ids = np.random.default_rng(1).integers(0, 500, 3001)
    inputs: list[Array | None] = [ids, *weight.stored]
    found = run_node("Embed", inputs, [np.float32], threads=2, precision="float32", width=64, factor=1.0)[0]
    np.testing.assert_array_equal(found, weight.value[ids].astype(np.float32))


@pytest.mark.parametrize("bad", [-1, 64])
def test_embed_refuses_ids_without_a_row(bad: int) -> None:
    weight = store(np.ones((40, 4), np.float32), "float32")
    inputs: list[Array | None] = [np.array([0, bad]), *weight.stored]
    with pytest.raises(Exception, match=f"Embed: the table has no row {bad}"):
        run_node("Embed", inputs, [np.float32], precision="float32", width=4, factor=1.0)


def refused(problem: Problem, message: str, **attributes: Any) -> None:
    changed = replace(problem, attributes={**problem.attributes, **attributes})
    with pytest.raises(Exception, match=message):
        project(changed)


def test_project_refuses_what_does_not_fit() -> None:
    problem = make(Case(3, 8, ((40,),), "int8", bias=True, norm="layer", residual=True))
    refused(problem, "ranks and sizes do not fit", sizes=[40, 2])
    refused(problem, "number of inputs does not fit", bias=0)
    floats = make(Case(3, 8, ((40,),)))
    refused(floats, "element type does not fit", precision="float16")
    refused(problem, "activation is not 'swish'", activation="swish")
    refused(problem, "the precision 'int3' is none of", precision="int3")
    refused(problem, "panels do not fit", sizes=[70])
    refused(problem, "scale needs one number for each output", sizes=[39])
    refused(problem, "fewer axes than depth", depth=3)
    refused(problem, "gain comes with a normalization", norm="none")
    refused(problem, "offset comes with the layer norm", norm="rms")
    for index, message in ((1, "residual is not as large"), (2, "gain needs one number"), (6, "bias needs one number")):
        inputs = list(problem.inputs)
        inputs[index] = np.ones((3, 39), np.float32)
        refused(replace(problem, inputs=inputs), message)


def test_int4_takes_a_scale_for_each_group() -> None:
    problem = make(Case(3, 40, ((35,),), "int4"))
    scale = cast(Array, problem.inputs[5])
    assert scale.shape == (2, 2, PANEL)
    for wrong in (scale[:1], scale[:, :1]):
        inputs = [*problem.inputs[:5], np.ascontiguousarray(wrong)]
        refused(replace(problem, inputs=inputs), "scale needs one number for each output")
        arguments: list[Array | None] = [np.zeros(2, np.int64), problem.inputs[4], inputs[5]]
        with pytest.raises(Exception, match="Embed: scale does not have one number for each row"):
            run_node("Embed", arguments, [np.float32], precision="int4", width=40, factor=1.0)
