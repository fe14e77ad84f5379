"""Linear maps of experts, of which only the chosen ones are computed."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod, sqrt
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import ZERO, Cost, Reach, count, moving
from xformc.compiler.graph.graph import Initial, Node, Op, Value
from xformc.compiler.graph.primitives import Site, optional, primitive
from xformc.compiler.graph.rules import OnnxEmitter, TorchNamespace, cost, mixes, require, to_onnx, to_torch, types
from xformc.compiler.ops.layout import aligner, emit_aligned, union
from xformc.compiler.quantize.formats import FORMATS

MOST = 1024
"""The number of experts; each has weights of its own."""


@dataclass(frozen=True)
class ExpertLinear(Op):
    """`y[.., out] = sum over over of x[.., over] * weight[e][out, over] + bias[e][out]`, where e is the expert's index.

    Inputs: x with the axes `over`; the indices, int64; a weight for each expert, and a bias for each if `biased`. The
    axes of x and of the indices are matched by name. Each row is computed by the expert that its index names.
    """

    kind: ClassVar[str] = "expert_linear"
    over: tuple[str, ...]
    experts: int
    biased: bool

    def rows(self, inputs: tuple[Type, ...]) -> tuple[Axis, ...]:
        """The axes of the rows: those of the indices, then others of x."""
        return union(inputs[1].axes, inputs[0].without(self.over))


@types.rule(ExpertLinear)
def _expert_linear_types(op: ExpertLinear, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    x, index, *weights = inputs
    missing = [name for name in op.over if name not in x.names]
    require(not missing, f"the input {x} has no axis {', '.join(missing)}")
    require(index.dtype == "int64", f"needs int64 indices, found {index}")
    require(len(weights) == op.experts * (1 + op.biased), f"{op.experts} experts have {len(weights)} parameters")
    new = weights[0].axes[: len(weights[0].axes) - len(op.over)]
    sizes = tuple(x.axis(name).size for name in op.over)
    for weight in weights[: op.experts]:
        found = tuple(axis.size for axis in weight.axes[len(new) :])
        require(weight.axes[: len(new)] == new and found == sizes, f"the weight {weight} does not fit {x}")
    for bias in weights[op.experts :]:
        require(bias.axes == new, f"the bias {bias} does not fit {', '.join(map(str, new))}")
    rows = op.rows(inputs)
    twice = [axis.name for axis in new if axis.name in {row.name for row in rows}]
    require(not twice, f"the result would have the axis {', '.join(twice)} twice")
    both = [name for name in op.over if name in index.names]
    require(not both, f"the indices {index} have the axis {', '.join(both)}")
    return (Type(x.dtype, (*rows, *new)),)


@mixes.rule(ExpertLinear)
def _expert_linear_mixes(op: ExpertLinear, node: Node) -> frozenset[str]:
    return frozenset(op.over)


@dataclass(frozen=True)
class _Plan:
    """x as [rows.., over..], the indices as [rows..], and the sizes of a weight [new, width]."""

    x: Type
    index: Type
    new: tuple[int, ...]
    width: int


def _plan(op: ExpertLinear, node: Node) -> _Plan:
    x, index, weight = (value.type for value in node.inputs[:3])
    rows = op.rows((x, index))
    sizes, depth = weight.sizes(), len(weight.axes) - len(op.over)
    ordered = Type(x.dtype, (*rows, *(x.axis(name) for name in op.over)))
    return _Plan(ordered, Type("int64", rows), sizes[:depth], prod(sizes[depth:]))


@to_torch.rule(ExpertLinear)
def _expert_linear_torch(op: ExpertLinear, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    plan = _plan(op, node)
    first, second = aligner(node.inputs[0].type, plan.x), aligner(node.inputs[1].type, plan.index)
    maps = [torch.linear(value.name) for value in node.inputs[2 : 2 + op.experts]]
    rank, depth = len(plan.index.axes), len(op.over)

    def whole(value: Any) -> Any:
        return value[(None,) * (rank - value.dim())] if value.dim() < rank else value

    def apply(x: Any, index: Any, *given: Any) -> Any:
        x, index = first(x).flatten(-depth), whole(second(index)).clamp(0, op.experts - 1)
        x = x[(None,) * (rank + 1 - x.dim())]
        shape = torch.torch.broadcast_shapes(x.shape[:-1], index.shape)
        chosen = index.expand(shape).flatten()
        order = torch.torch.argsort(chosen, stable=True)
        counts = torch.torch.bincount(chosen, minlength=op.experts).tolist()
        parts = x.expand(*shape, plan.width).reshape(-1, plan.width)[order].split(counts)
        weights, biases = given[: op.experts], given[op.experts :] or [None] * op.experts
        results = [
            linear(part, weight.reshape(-1, plan.width), None if bias is None else bias.flatten())
            for linear, part, weight, bias in zip(maps, parts, weights, biases, strict=True)
        ]
        return torch.torch.cat(results)[torch.torch.argsort(order)].reshape(*shape, *plan.new)

    return apply


@to_onnx.rule(ExpertLinear)
def _expert_linear_onnx(op: ExpertLinear, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    """The rows in the order of their experts, a product for each expert, and the rows in their own order again."""
    plan, rows = _plan(op, node), op.rows((node.inputs[0].type, node.inputs[1].type))
    new = prod(plan.new)
    x = emit_aligned(onnx, inputs[0], node.inputs[0].type, plan.x)
    x = onnx.op("Reshape", onnx.op("Expand", x, onnx.shape(plan.x.axes)), [-1, plan.width])
    order, inverse, counts = _order(op, node, onnx, inputs[1], plan, onnx.shape(rows))
    parts = onnx.ops("Split", op.experts, onnx.op("Gather", x, order, axis=0), counts, axis=0)
    products: list[str] = []
    for expert, part in enumerate(parts):
        matrix = onnx.weight(inputs[2 + expert], "rows", new, plan.width)
        bias = [onnx.flat(inputs[2 + op.experts + expert], new)] if op.biased else []
        products.append(FORMATS[matrix.precision].emit_product(onnx, part, matrix, bias))
    joined = onnx.op("Gather", onnx.op("Concat", *products, axis=0), inverse, axis=0)
    return (onnx.op("Reshape", joined, onnx.shape(node.outputs[0].type.axes)),)


def _order(
    op: ExpertLinear, node: Node, onnx: OnnxEmitter, index: str, plan: _Plan, shape: str
) -> tuple[str, str, str]:
    """The order of the rows by expert, its inverse, and the rows of each expert; maps of the same indices share it."""
    key = f"order {index} {' '.join(plan.index.names)} {op.experts}"

    def chosen() -> str:
        aligned = emit_aligned(onnx, index, node.inputs[1].type, plan.index)
        clipped = onnx.op("Clip", aligned, 0, op.experts - 1)
        return onnx.op("Reshape", onnx.op("Expand", clipped, shape), [-1])

    flat = onnx.once(key, chosen)
    size = onnx.once(f"{key} size", lambda: onnx.op("Shape", flat))
    order = onnx.once(f"{key} order", lambda: onnx.ops("TopK", 2, flat, size, axis=0, largest=0)[1])
    inverse = onnx.once(f"{key} inverse", lambda: onnx.ops("TopK", 2, order, size, axis=0, largest=0)[1])

    def counted() -> str:
        every = onnx.op("Range", 0, op.experts, 1)
        same = onnx.op("Equal", onnx.op("Unsqueeze", flat, [0]), onnx.op("Unsqueeze", every, [1]))
        return onnx.op("ReduceSum", onnx.op("Cast", same, to=7), [1], keepdims=0)

    return order, inverse, onnx.once(f"{key} counts", counted)


@cost.rule(ExpertLinear)
def _expert_linear_cost(op: ExpertLinear, node: Node) -> Cost:
    """The products of the chosen experts; all weights are read."""
    x, results = node.inputs[0].type, count(node.outputs[0].type.axes)
    products = results * count(x.axis(name) for name in op.over) * 2
    return replace(moving(node, products, results if op.biased else ZERO), reach=Reach(op.over[0], "all"))


@primitive("expert_linear", by="value", experts="axis", to="axes", over=optional("axes"), bias=optional("flag"))
def _expert_linear(
    site: Site,
    x: Value,
    *,
    by: Value,
    experts: Axis,
    to: tuple[Axis, ...],
    over: tuple[Axis, ...] | None = None,
    bias: bool = True,
) -> Value:
    """`linear` by the experts whose indices are `by`, of `experts` in all. Only these are computed, and none drops a
    row. Each expert has its own weight and bias.
    """
    old, count = over or x.type.axes[-1:], experts.size or 0
    for axis in old:
        if axis not in x.type.axes:
            raise site.refuse(f"its input {x.type} has no axis {axis}")
    if count > MOST:
        raise site.refuse(f"there are at most {MOST:,} experts, found {count:,}")
    bound = sqrt(6 / (prod(axis.size or 1 for axis in old) + prod(axis.size or 1 for axis in to)))
    inputs = [x, by]
    inputs += [site.parameter(f"{index}/weight", (*to, *old), Initial("uniform", bound)) for index in range(count)]
    if bias:
        inputs += [site.parameter(f"{index}/bias", to, Initial("constant", 0.0)) for index in range(count)]
    return site.emit(ExpertLinear(tuple(axis.name for axis in old), count, bias), *inputs)
