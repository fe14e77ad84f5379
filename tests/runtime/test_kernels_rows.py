"""Normalize, Rotate and Multiply against the same computations in numpy."""

from typing import Any, cast

import numpy as np
import pytest

from tests.runtime.kernel_session import Array, check_refused, run_node

FLOAT = np.float32

pytestmark = pytest.mark.usefixtures("isa")


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(FLOAT)


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize(("shape", "axes"), [((3, 64), 1), ((7,), 1), ((2, 3, 5, 4), 2), ((700, 40), 1), ((0, 8), 1)])
@pytest.mark.parametrize("offset", [True, False])
def test_normalize(norm: str, shape: tuple[int, ...], axes: int, offset: bool) -> None:
    x, gain, bias = normal(*shape) * 3 + 1, normal(*shape[-axes:], seed=1), normal(*shape[-axes:], seed=2)
    given = bias if offset and norm == "layer" else None
    [found] = run_node("Normalize", [x, gain, given], [FLOAT], threads=2, norm=norm, axes=axes, epsilon=1e-3)
    last = tuple(range(-axes, 0))
    wide = x.astype(np.float64)
    wide -= wide.mean(last, keepdims=True) if norm == "layer" else 0
    expected = wide / np.sqrt((wide**2).mean(last, keepdims=True) + 1e-3) * gain + (0 if given is None else given)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_normalize_gives_the_bits_of_a_normalization_after_a_product() -> None:
    random, gain, offset = normal(5, 64), normal(64, seed=1), normal(64, seed=2)
    weight = np.eye(64, dtype=FLOAT).reshape(2, 32, 64).transpose(0, 2, 1).copy()
    one: dict[str, Any] = {"depth": 1, "parts": 1, "ranks": [1], "sizes": [64], "bias": 0, "precision": "float32"}
    inside: dict[str, Any] = {**one, "activation": "none", "norm": "layer", "epsilon": 1e-5}
    [expected] = run_node("Project", [random, None, gain, offset, weight], [FLOAT], **inside)
    [found] = run_node("Normalize", [random, gain, offset], [FLOAT], norm="layer", axes=1, epsilon=1e-5)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("halves", [0, 1])
@pytest.mark.parametrize(
    ("shape", "angles"),
    [
        ((2, 3, 4, 8), (2, 3, 1, 4)),
        ((2, 3, 4, 8), (1, 3, 1, 3)),
        ((2, 3, 4, 9), (4, 4)),
        ((2, 3, 4, 8), (2, 1, 4, 2)),
        ((900, 2, 64), (900, 1, 32)),
        ((6,), (3,)),
        ((0, 8), (1, 4)),
    ],
)
def test_rotate(shape: tuple[int, ...], angles: tuple[int, ...], halves: int) -> None:
    x, turns, half = normal(*shape), normal(*angles, seed=1), angles[-1]
    cos, sin = np.cos(turns), np.sin(turns)
    [found] = run_node("Rotate", [x, cos, sin], [FLOAT], threads=2, halves=halves)
    first, second = (
        (x[..., :half], x[..., half : 2 * half]) if halves else (x[..., : 2 * half : 2], x[..., 1 : 2 * half : 2])
    )
    pairs = [first * cos - second * sin, second * cos + first * sin]
    expected = x.copy()
    expected[..., : 2 * half] = (
        np.concatenate(pairs, -1) if halves else np.stack(pairs, -1).reshape(*shape[:-1], 2 * half)
    )
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("shape", [(3, 5), (), (0, 4), (70_000,), (3, 7, 5000)])
@pytest.mark.parametrize("axes", [0, 1, 3])
def test_sums_and_products_of_numbers(shape: tuple[int, ...], axes: int) -> None:
    """The second input has the last axes of the first."""
    a, b = normal(*shape), normal(*shape[max(0, len(shape) - axes) :], seed=1)
    assert np.array_equal(run_node("Add", [a, b], [FLOAT], threads=2)[0], a + b)
    assert np.array_equal(run_node("Multiply", [a, b], [FLOAT], threads=2)[0], a * b)


def test_they_refuse_what_does_not_fit() -> None:
    right: dict[str, Array | None] = {"x": normal(2, 8), "gain": normal(8), "offset": normal(8)}
    layer: dict[str, Any] = {"norm": "layer", "axes": 1, "epsilon": 1e-5}
    check_refused("Normalize", right, {"gain": normal(7)}, "gain needs one number", [FLOAT], **layer)
    check_refused("Normalize", right, {"offset": normal(9)}, "offset needs one number", [FLOAT], **layer)
    with pytest.raises(Exception, match="offset comes with the layer norm"):
        run_node("Normalize", [*right.values()], [FLOAT], **cast(Any, {**layer, "norm": "rms"}))
    for changed, message in (
        ({"norm": "batch"}, "layer or rms"),
        ({"axes": 0}, "at least one axis"),
        ({"axes": 3}, "fewer axes"),
    ):
        with pytest.raises(Exception, match=message):
            run_node("Normalize", [*right.values()], [FLOAT], **cast(Any, {**layer, **changed}))
    turned: dict[str, Array | None] = {"x": normal(2, 8), "cos": normal(2, 4), "sin": normal(2, 4)}
    check_refused("Rotate", turned, {"sin": normal(2, 3)}, "as many sines as cosines", [FLOAT], halves=0)
    check_refused("Rotate", turned, {"x": normal(2, 7)}, "more angles than pairs", [FLOAT], halves=0)
    check_refused("Rotate", turned, {"x": normal(3, 8)}, "do not fit those of x", [FLOAT], halves=0)
    check_refused("Rotate", turned, {"x": normal(8)}, "more axes than x", [FLOAT], halves=0)
    for operator in ("Add", "Multiply"):
        for b in (normal(2), normal(3, 3), normal(1, 3), normal(1, 2, 3)):
            check_refused(operator, {"a": normal(2, 3), "b": normal(3)}, {"b": b}, "the last axes", [FLOAT])
