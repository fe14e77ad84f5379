"""Rotary positions: rotates queries and keys by angles proportional to their position."""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import per_result
from xformc.compiler.graph.graph import Node, Op, Value
from xformc.compiler.graph.primitives import Site, optional, primitive
from xformc.compiler.graph.rules import (
    OnnxEmitter,
    TorchNamespace,
    cost,
    mixes,
    mixes_nothing,
    require,
    to_onnx,
    to_torch,
    types,
)
from xformc.compiler.ops.frequencies import BASE, SCALINGS, Dynamic, Scaling, frequencies
from xformc.compiler.ops.layout import aligner, emit_aligned
from xformc.compiler.ops.positions import Positions, check_base

FUNCTIONS = ("Cos", "Sin")
"""The functions of the angles that rotate pairs, in the order of the inputs of `Rotate`."""


@dataclass(frozen=True)
class Angles(Op):
    """A function of the angles `a = position * base^(-2i/width)`, which are half as many as `width` elements.

    Input: positions, int64 or float32. The result has a new last axis `axis`, and is multiplied by the factor of
    `scaling`, if there is one: it changes the frequencies, and `numbers` are its fields.
    """

    kind: ClassVar[str] = "angles"
    axis: str
    width: int
    function: str
    base: float = BASE
    scaling: str | None = None
    numbers: tuple[float | None, ...] = ()

    def frequencies(self) -> tuple[list[float], float]:
        """The angle per position of each pair, in radians, and the factor of the rotated elements."""
        scaling = self._scaling()
        if scaling is None:
            return frequencies(self.width, self.base), 1.0
        return scaling.of(self.width, self.base), scaling.attention()

    def growth(self) -> tuple[list[float], float, float] | None:
        """How the angles depend on the position beyond proportion; see `Dynamic`."""
        scaling = self._scaling()
        return scaling.growth(self.width) if isinstance(scaling, Dynamic) else None

    def _scaling(self) -> Scaling | None:
        if self.scaling is None:
            return None
        return SCALINGS[self.scaling](*self.numbers)  # pyright: ignore[reportArgumentType] (each has its own fields)


@types.rule(Angles)
def _angles_types(op: Angles, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    (positions,) = inputs
    require(op.width % 2 == 0, f"pairs are rotated, so {op.width} must be even")
    require(positions.dtype in ("int64", "float32"), f"{positions} are no positions")
    return (Type("float32", (*positions.axes, Axis(op.axis, op.width // 2))),)


mixes.rule(Angles)(mixes_nothing)


@to_torch.rule(Angles)
def _angles_torch(op: Angles, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    namespace, function = torch.torch, getattr(torch.torch, op.function.lower())
    (values, factor), growth = op.frequencies(), op.growth()

    def apply(positions: Any) -> Any:
        index = positions.to(namespace.float32).unsqueeze(-1)
        angles = index * namespace.tensor(values, device=index.device)
        if growth is not None:
            exponents, slope, bound = growth
            longer = 1 + slope * (index - bound).clamp(min=0)
            angles = angles * longer ** namespace.tensor(exponents, device=index.device)
        return factor * function(angles)

    return apply


@to_onnx.rule(Angles)
def _angles_onnx(op: Angles, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    _, factor = op.frequencies()
    angles = onnx.once(f"angles of {inputs[0]} for {replace(op, function='')}", lambda: _emit_angles(op, onnx, *inputs))
    result = onnx.op(op.function, angles)
    return (result if factor == 1 else onnx.op("Mul", result, factor),)


def _emit_angles(op: Angles, onnx: OnnxEmitter, positions: str) -> str:
    (values, _), growth = op.frequencies(), op.growth()
    index = onnx.op("Unsqueeze", onnx.op("Cast", positions, to=1), [-1])
    angles = onnx.op("Mul", index, values)
    if growth is None:
        return angles
    exponents, slope, bound = growth
    beyond = onnx.op("Max", onnx.op("Sub", index, bound), 0.0)
    longer = onnx.op("Add", onnx.op("Mul", beyond, slope), 1.0)
    return onnx.op("Mul", angles, onnx.op("Pow", longer, exponents))


cost.rule(Angles)(per_result(2))


@dataclass(frozen=True)
class Rotate(Op):
    """Rotate pairs of the last axis by the angles of their positions (Su et al. 2021, equation 34).

    `y[2i] = x[2i] cos a[i] - x[2i+1] sin a[i]`, `y[2i+1] = x[2i+1] cos a[i] + x[2i] sin a[i]`. The dot product of two
    rotated vectors depends only on the distance of their positions. Inputs: x [.., width]; the cosines and the sines of
    the angles (`Angles`), whose other axes are axes of x. If there are fewer angles than pairs, the last elements are
    kept. With `halves`, the pairs are x[i] and x[i + n] of n angles.
    """

    kind: ClassVar[str] = "rotate"
    halves: bool = False


@types.rule(Rotate)
def _rotate_types(op: Rotate, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    x, cos, sin = inputs
    width = rotated_width(cos)
    require(width <= (x.axes[-1].size or 0), f"{width} numbers cannot be rotated: {x.axes[-1]} has fewer")
    fits = cos == sin and cos.dtype == "float32" and set(cos.axes[:-1]) <= set(x.axes[:-1])
    require(fits, f"the angles {cos} and {sin} do not fit {x}")
    return (x,)


def rotated_width(angles: Type) -> int:
    """The number of elements that are rotated by angles of this type."""
    return 2 * (angles.axes[-1].size or 0)


@mixes.rule(Rotate)
def _rotate_mixes(op: Rotate, node: Node) -> frozenset[str]:
    return frozenset(node.inputs[0].type.names[-1:])


def _like(node: Node) -> tuple[Type, Type]:
    """The type of the angles, and that type in the axis order of x."""
    x, cos, _ = (value.type for value in node.inputs)
    return cos, Type("float32", (*x.axes[:-1], cos.axes[-1]))


def emit_rotation(node: Node, onnx: OnnxEmitter, angles: tuple[str, ...]) -> tuple[str, ...]:
    """The cosines and the sines with the axes of x or 1, once for equal ones; where all of them are 1, as they are."""
    found, wanted = _like(node)
    if all(axis.size == 1 for axis in found.axes[:-1]):
        return angles
    return tuple(
        onnx.once(f"{name} as {wanted}", lambda name=name: emit_aligned(onnx, name, found, wanted)) for name in angles
    )


@to_torch.rule(Rotate)
def _rotate_torch(op: Rotate, node: Node, torch: TorchNamespace) -> Callable[[Any, Any, Any], Any]:
    namespace, width, align = torch.torch, rotated_width(node.inputs[1].type), aligner(*_like(node))

    def apply(x: Any, cos: Any, sin: Any) -> Any:
        cos, sin = (align(part).to(x.dtype) for part in (cos, sin))
        rotated, kept = x[..., :width], x[..., width:]
        if op.halves:
            first, second = rotated.chunk(2, -1)
            pairs = namespace.cat((first * cos - second * sin, second * cos + first * sin), -1)
        else:
            first, second = rotated.unflatten(-1, (-1, 2)).unbind(-1)
            pairs = namespace.stack((first * cos - second * sin, second * cos + first * sin), -1).flatten(-2)
        return pairs if width == x.shape[-1] else namespace.cat((pairs, kept), -1)

    return apply


@to_onnx.rule(Rotate)
def _rotate_onnx(op: Rotate, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    kind, x = node.inputs[0].type, inputs[0]
    width, last = rotated_width(node.inputs[1].type), len(kind.axes) - 1
    cos, sin = emit_rotation(node, onnx, inputs[1:])

    def between(start: int, end: int, step: int = 1) -> str:
        return onnx.op("Slice", x, [start], [end], [last], [step])

    half = width // 2
    first = between(0, half) if op.halves else between(0, width, 2)
    second = between(half, width) if op.halves else between(1, width, 2)
    parts = [
        onnx.op("Sub", onnx.op("Mul", first, cos), onnx.op("Mul", second, sin)),
        onnx.op("Add", onnx.op("Mul", second, cos), onnx.op("Mul", first, sin)),
    ]
    if not op.halves:
        pairs = onnx.op("Concat", *(onnx.op("Unsqueeze", part, [-1]) for part in parts), axis=-1)
        parts = [onnx.op("Reshape", pairs, [*([0] * last), width])]
    parts += [] if width == kind.axes[-1].size else [between(width, 2**31)]
    return (parts[0] if len(parts) == 1 else onnx.op("Concat", *parts, axis=-1),)


cost.rule(Rotate)(per_result(3))


@primitive(
    "rope",
    base=optional("number"),
    at=optional("value"),
    part=optional("number"),
    halves=optional("flag"),
    scaling=optional("word"),
    factor=optional("number"),
    original_positions=optional("number"),
    beta_fast=optional("number"),
    beta_slow=optional("number"),
    attention_factor=optional("number"),
    low_frequency_factor=optional("number"),
    high_frequency_factor=optional("number"),
)
def _rope(
    site: Site,
    x: Value,
    base: float = BASE,
    *,
    at: Value | None = None,
    part: float | None = None,
    halves: bool = False,
    scaling: str | None = None,
    **numbers: float,
) -> Value:
    """Each pair of numbers of the last axis, rotated by an angle proportional to the position: for queries and keys.

    Pair i of n turns by base^(-i / n) a position. `at`: the position of each vector, if they are not 0, 1, 2, ..; a
    value with axes of `x`, such as `position` plus the length of what comes before. `part`: how many numbers are
    rotated, the first of them (default: all). `halves`: a pair is the numbers i and i + n (GPT-NeoX; Llama at Hugging
    Face), and not two neighbours.
    `scaling` is for longer texts: `linear`, `ntk`, `dynamic`, `yarn` or `llama3`, with their numbers.
    """
    positions, width = site.positions(x), site.last(x)
    if positions == width.name:
        raise site.refuse(f"needs vectors at the positions {positions}, found {x.name}: {x.type}")
    check_base(site, base)
    if part is not None and (part != int(part) or part < 2 or part % 2 or part > (width.size or 0)):
        raise site.refuse_number("part", part, f"part must be an even number from 2 to {width}")
    rotated, given = int(part or width.size or 0), _scaled(site, scaling, numbers)
    if rotated % 2:
        raise site.refuse(f"pairs are rotated, so {width} must be even")
    if scaling is not None and rotated < SCALINGS[scaling].least:
        raise site.refuse(f"the scaling {scaling} needs at least {SCALINGS[scaling].least} rotated numbers")
    index = site.emit(Positions(positions), x, name="index") if at is None else _given_positions(site, x, at)
    made = (Angles(f"{width.name}/pairs", rotated, kind, float(base), scaling, given) for kind in FUNCTIONS)
    angles = [site.emit(one, index, name=one.function.lower()) for one in made]
    return site.emit(Rotate(halves), x, *angles)


def _given_positions(site: Site, x: Value, at: Value) -> Value:
    """The argument `at`. Raises: what `site.refuse` makes, if these are no positions of `x`."""
    if at.type.dtype not in ("int64", "float32") or not set(at.type.axes) <= set(x.type.axes[:-1]):
        raise site.refuse(f"'at' needs numbers with axes of {x.name}: {x.type}, found {at.name}: {at.type}")
    return at


def _scaled(site: Site, scaling: str | None, numbers: dict[str, float]) -> tuple[float | None, ...]:
    """The fields of the scaling, in order."""
    if scaling is not None and scaling not in SCALINGS:
        raise site.refuse(f"'scaling' must be {', '.join(SCALINGS)}, found '{scaling}'")
    taken = () if scaling is None else fields(SCALINGS[scaling])
    unused = [name for name in numbers if name not in {item.name for item in taken}]
    if unused:
        without = "without a scaling" if scaling is None else f"with the scaling {scaling}"
        raise site.refuse(f"{unused[0]} has no effect {without}", f"remove {unused[0]}, or choose another scaling")
    missing = [item.name for item in taken if item.name not in numbers and item.default is MISSING]
    if missing:
        raise site.refuse(f"the scaling {scaling} needs {' and '.join(missing)}")
    if scaling is None:
        return ()
    given = {name: float(value) for name, value in numbers.items()}
    made = SCALINGS[scaling](**given)
    mistake = made.mistake()
    if mistake is not None:
        name, message = mistake
        value = getattr(made, name)
        fault = site.refuse_number(name, value, f"{name} {message}") if name in numbers else None
        raise fault or site.refuse(f"{name} {message}, found {value:g}")
    return tuple(getattr(made, item.name) for item in taken)
