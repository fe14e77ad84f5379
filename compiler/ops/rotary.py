"""Rotary positions: queries and keys are turned by angles that grow with their position."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import per_result
from xformc.compiler.graph.graph import Node, Op, Value
from xformc.compiler.graph.primitives import Site, primitive
from xformc.compiler.graph.rules import OnnxEmitter, TorchNamespace, cost, mixes, require, to_onnx, to_torch, types
from xformc.compiler.ops.layout import aligner, emit_aligned
from xformc.compiler.ops.positions import Positions, frequency


@dataclass(frozen=True)
class Rotate(Op):
    """Each pair of numbers of the last axis, turned by `position * 10000^(-2i/width)` (Su et al. 2021, equation 34):

    `y[2i] = x[2i] cos a - x[2i+1] sin a`, `y[2i+1] = x[2i+1] cos a + x[2i] sin a`. The product of two vectors so turned
    depends on the distance of their positions alone. Inputs: x [.., width]; int64 positions with one axis of x.
    """

    kind: ClassVar[str] = "rotate"


@types.rule(Rotate)
def _rotate_types(op: Rotate, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    x, positions = inputs
    width = x.axes[-1]
    require(width.size is not None and width.size % 2 == 0, f"pairs are turned, so {width} must be even")
    fits = positions.dtype == "int64" and set(positions.axes) <= set(x.axes[:-1])
    require(fits, f"the positions {positions} do not fit {x}")
    return (x,)


@mixes.rule(Rotate)
def _rotate_mixes(op: Rotate, node: Node) -> frozenset[str]:
    return frozenset(node.inputs[0].type.names[-1:])


def _angles(node: Node) -> tuple[list[float], Type, Type]:
    """The angle that one position adds in each pair, the axes of all angles, and those in the order of x."""
    x, positions = (value.type for value in node.inputs)
    width = x.axes[-1]
    half = Axis(width.name, (width.size or 0) // 2)
    values = [frequency(index, width.size or 0) for index in range(0, width.size or 0, 2)]
    return values, Type("float32", (*positions.axes, half)), Type("float32", (*x.axes[:-1], half))


@to_torch.rule(Rotate)
def _rotate_torch(op: Rotate, node: Node, torch: TorchNamespace) -> Callable[[Any, Any], Any]:
    namespace, (values, found, wanted) = torch.torch, _angles(node)
    align = aligner(found, wanted)

    def apply(x: Any, positions: Any) -> Any:
        frequencies = namespace.tensor(values, device=x.device)
        angles = align(positions.to(namespace.float32).unsqueeze(-1) * frequencies)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
        return namespace.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)

    return apply


@to_onnx.rule(Rotate)
def _rotate_onnx(op: Rotate, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    x, positions = inputs
    values, found, wanted = _angles(node)
    last = len(wanted.axes) - 1

    def turned(kind: str) -> str:
        index = onnx.op("Unsqueeze", onnx.op("Cast", positions, to=1), [-1])
        return emit_aligned(onnx, onnx.op(kind, onnx.op("Mul", index, values)), found, wanted)

    cos, sin = (onnx.once(f"{kind} of {positions} for {wanted}", lambda kind=kind: turned(kind)) for kind in _KINDS)
    even, odd = (onnx.op("Slice", x, [start], [2**31], [last], [2]) for start in (0, 1))
    first = onnx.op("Sub", onnx.op("Mul", even, cos), onnx.op("Mul", odd, sin))
    second = onnx.op("Add", onnx.op("Mul", odd, cos), onnx.op("Mul", even, sin))
    pairs = onnx.op("Concat", *(onnx.op("Unsqueeze", part, [-1]) for part in (first, second)), axis=-1)
    return (onnx.op("Reshape", pairs, [*([0] * last), 2 * len(values)]),)


_KINDS = ("Cos", "Sin")

cost.rule(Rotate)(per_result(3))


@primitive("rope")
def _rope(site: Site, x: Value) -> Value:
    """Each pair of numbers of the last axis, rotated by an angle proportional to the position: for queries and keys."""
    positions, width = site.positions(x), x.type.axes[-1]
    if positions == width.name:
        raise site.refuse(f"needs vectors at the positions {positions}, found {x.name}: {x.type}")
    return site.emit(Rotate(), x, site.emit(Positions(positions), x, name="index"))
