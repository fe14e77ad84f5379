"""Rotary positions: rotates queries and keys by angles proportional to their position."""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import per_result
from xformc.compiler.graph.graph import Node, Op, Value
from xformc.compiler.graph.primitives import Site, optional, primitive
from xformc.compiler.graph.rules import OnnxEmitter, TorchNamespace, cost, mixes, require, to_onnx, to_torch, types
from xformc.compiler.ops.frequencies import BASE, SCALINGS, Dynamic, Scaling, frequencies
from xformc.compiler.ops.layout import aligner, emit_aligned
from xformc.compiler.ops.positions import Positions, check_base


@dataclass(frozen=True)
class Rotate(Op):
    """Rotate each pair of the last axis by `a = position * base^(-2i/width)` (Su et al. 2021, equation 34).

    `y[2i] = x[2i] cos a - x[2i+1] sin a`, `y[2i+1] = x[2i+1] cos a + x[2i] sin a`. The dot product of two rotated
    vectors depends only on the distance of their positions. Inputs: x [.., width]; int64 positions with one axis of x.
    With `part`, the first elements are rotated and the others kept, and `width` is `part`. With `halves`, the pairs are
    x[i] and x[i + width/2]. `scaling` changes the frequencies; `numbers` are its fields.
    """

    kind: ClassVar[str] = "rotate"
    base: float = BASE
    part: int | None = None
    halves: bool = False
    scaling: str | None = None
    numbers: tuple[float | None, ...] = ()

    def width(self, x: Type) -> int:
        """The number of elements that are rotated."""
        return self.part or x.axes[-1].size or 0

    def angles(self, x: Type) -> tuple[list[float], float]:
        """The angle per position of each pair, in radians, and the factor of the rotated elements."""
        scaling = self._scaling()
        if scaling is None:
            return frequencies(self.width(x), self.base), 1.0
        return scaling.of(self.width(x), self.base), scaling.attention()

    def growth(self, x: Type) -> tuple[list[float], float, float] | None:
        """How the angles depend on the position beyond proportion; see `Dynamic`."""
        scaling = self._scaling()
        return scaling.growth(self.width(x)) if isinstance(scaling, Dynamic) else None

    def _scaling(self) -> Scaling | None:
        if self.scaling is None:
            return None
        return SCALINGS[self.scaling](*self.numbers)  # pyright: ignore[reportArgumentType] (each has its own fields)


@types.rule(Rotate)
def _rotate_types(op: Rotate, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    x, positions = inputs
    last = x.axes[-1]
    require(last.size is not None and op.width(x) % 2 == 0, f"pairs are rotated, so {op.part or last} must be even")
    require(op.width(x) <= (last.size or 0), f"{op.part} numbers cannot be rotated: {last} has fewer")
    fits = positions.dtype == "int64" and set(positions.axes) <= set(x.axes[:-1])
    require(fits, f"the positions {positions} do not fit {x}")
    return (x,)


@mixes.rule(Rotate)
def _rotate_mixes(op: Rotate, node: Node) -> frozenset[str]:
    return frozenset(node.inputs[0].type.names[-1:])


def _angle_types(op: Rotate, node: Node) -> tuple[Type, Type]:
    """The type of all angles, and that type in the axis order of x."""
    x, positions = (value.type for value in node.inputs)
    half = Axis(x.names[-1], op.width(x) // 2)
    return Type("float32", (*positions.axes, half)), Type("float32", (*x.axes[:-1], half))


@to_torch.rule(Rotate)
def _rotate_torch(op: Rotate, node: Node, torch: TorchNamespace) -> Callable[[Any, Any], Any]:
    namespace, width = torch.torch, op.width(node.inputs[0].type)
    (values, factor), growth = op.angles(node.inputs[0].type), op.growth(node.inputs[0].type)
    align = aligner(*_angle_types(op, node))

    def turns(positions: Any) -> Any:
        index = positions.to(namespace.float32).unsqueeze(-1)
        angles = index * namespace.tensor(values, device=index.device)
        if growth is None:
            return angles
        exponents, slope, bound = growth
        longer = 1 + slope * (index - bound).clamp(min=0)
        return angles * longer ** namespace.tensor(exponents, device=index.device)

    def apply(x: Any, positions: Any) -> Any:
        angles = align(turns(positions))
        cos, sin = ((factor * part).to(x.dtype) for part in (angles.cos(), angles.sin()))
        rotated, kept = x[..., :width], x[..., width:]
        if op.halves:
            first, second = rotated.chunk(2, -1)
            pairs = namespace.cat((first * cos - second * sin, second * cos + first * sin), -1)
        else:
            first, second = rotated.unflatten(-1, (-1, 2)).unbind(-1)
            pairs = namespace.stack((first * cos - second * sin, second * cos + first * sin), -1).flatten(-2)
        return pairs if width == x.shape[-1] else namespace.cat((pairs, kept), -1)

    return apply


def emit_angles(op: Rotate, node: Node, onnx: OnnxEmitter, positions: str) -> tuple[str, str]:
    """The cosines and the sines, times the factor, of all angles, with the axes of x or 1; once for equal ones."""
    kind, growth = node.inputs[0].type, op.growth(node.inputs[0].type)
    (values, factor), (found, wanted) = op.angles(kind), _angle_types(op, node)

    def turned(function: str) -> str:
        index = onnx.op("Unsqueeze", onnx.op("Cast", positions, to=1), [-1])
        angles = onnx.op("Mul", index, values)
        if growth is not None:
            exponents, slope, bound = growth
            beyond = onnx.op("Max", onnx.op("Sub", index, bound), 0.0)
            longer = onnx.op("Add", onnx.op("Mul", beyond, slope), 1.0)
            angles = onnx.op("Mul", angles, onnx.op("Pow", longer, exponents))
        result = onnx.op(function, angles)
        result = result if factor == 1 else onnx.op("Mul", result, factor)
        return emit_aligned(onnx, result, found, wanted)

    keys = {function: f"{function} of {positions} for {op} {wanted}" for function in ("Cos", "Sin")}
    cos, sin = (onnx.once(key, lambda function=function: turned(function)) for function, key in keys.items())
    return cos, sin


@to_onnx.rule(Rotate)
def _rotate_onnx(op: Rotate, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    kind, (x, positions) = node.inputs[0].type, inputs
    width, last = op.width(kind), len(kind.axes) - 1
    cos, sin = emit_angles(op, node, onnx, positions)

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
    part: float | None = None,
    halves: bool = False,
    scaling: str | None = None,
    **numbers: float,
) -> Value:
    """Each pair of numbers of the last axis, rotated by an angle proportional to the position: for queries and keys.

    Pair i of n turns by base^(-i / n) a position. `part`: how many numbers are rotated, the first of them (default:
    all). `halves`: a pair is the numbers i and i + n (GPT-NeoX; Llama at Hugging Face), and not two neighbours.
    `scaling` is for longer texts: `linear`, `ntk`, `dynamic`, `yarn` or `llama3`, with their numbers.
    """
    positions, width = site.positions(x), site.last(x)
    if positions == width.name:
        raise site.refuse(f"needs vectors at the positions {positions}, found {x.name}: {x.type}")
    check_base(site, base)
    if part is not None and (part != int(part) or part < 2 or part % 2 or part > (width.size or 0)):
        raise site.refuse_number("part", part, f"part must be an even number from 2 to {width}")
    first = None if part is None or part == width.size else int(part)
    op = Rotate(float(base), first, halves, scaling, _scaled(site, scaling, numbers))
    if scaling is not None and op.width(x.type) < SCALINGS[scaling].least:
        raise site.refuse(f"the scaling {scaling} needs at least {SCALINGS[scaling].least} rotated numbers")
    return site.emit(op, x, site.emit(Positions(positions), x, name="index"))


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
