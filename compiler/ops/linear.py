"""Linear maps between named axes: all projections of a model."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod, sqrt
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import ZERO, Cost, Reach, count, moving
from xformc.compiler.graph.graph import Initial, Node, Op, Value
from xformc.compiler.graph.initialization import Initialization
from xformc.compiler.graph.primitives import Site, optional, primitive
from xformc.compiler.graph.rules import (
    Hidden,
    OnnxEmitter,
    TorchNamespace,
    cost,
    hidden,
    mixes,
    mixture,
    require,
    to_onnx,
    to_torch,
    types,
)
from xformc.compiler.ops.layout import aligner, emit_aligned
from xformc.compiler.quantize.formats import FORMATS


@dataclass(frozen=True)
class Linear(Op):
    """`y[.., out] = sum over over of x[.., over] * weight[out, over] + bias[out]`.

    Inputs: x with the axes `over`; weight with the new axes first and those of `over` last; optionally a bias with the
    new axes. It may map several axes at once, such as heads and d_k, without reshaping.
    """

    kind: ClassVar[str] = "linear"
    over: tuple[str, ...]


@types.rule(Linear)
def _linear_types(op: Linear, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    x, weight = inputs[:2]
    missing = [name for name in op.over if name not in x.names]
    require(not missing, f"the input {x} has no axis {', '.join(missing)}")
    contracted = tuple(x.axis(name) for name in op.over)
    new = weight.axes[: len(weight.axes) - len(op.over)]
    sizes = tuple(axis.size for axis in weight.axes[len(new) :])
    require(
        sizes == tuple(axis.size for axis in contracted),
        f"the weight {weight} does not fit {', '.join(map(str, contracted))}",
    )
    if len(inputs) == 3:
        require(inputs[2].axes == new, f"the bias {inputs[2]} does not fit {', '.join(map(str, new))}")
    kept = x.without(op.over)
    twice = [axis.name for axis in new if axis in kept]
    require(not twice, f"the result would have the axis {', '.join(twice)} twice")
    return (Type(x.dtype, (*kept, *new)),)


@mixes.rule(Linear)
def _linear_mixes(op: Linear, node: Node) -> frozenset[str]:
    return frozenset(op.over)


@hidden.rule(Linear)
def _linear_hidden(op: Linear, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    return "zero" if inputs[0] == "zero" and len(inputs) == 2 else mixture(inputs[0])


def _ordered(op: Linear, x: Type) -> Type:
    return Type(x.dtype, (*x.without(op.over), *(x.axis(name) for name in op.over)))


@to_torch.rule(Linear)
def _linear_torch(op: Linear, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    x, weight = node.inputs[0].type, node.inputs[1].type
    align, depth = aligner(x, _ordered(op, x)), len(op.over)
    new = weight.sizes()[: len(weight.axes) - depth]
    width = prod(weight.sizes()[len(new) :])
    linear = torch.linear(node.inputs[1].name)

    def apply(x: Any, weight: Any, bias: Any = None) -> Any:
        x = align(x)
        if depth > 1:
            x = x.flatten(-depth)
        result = linear(x, weight.reshape(-1, width), None if bias is None else bias.reshape(-1))
        return result.unflatten(-1, new) if len(new) > 1 else result

    return apply


@to_onnx.rule(Linear)
def _linear_onnx(op: Linear, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    x, weight = node.inputs[0].type, node.inputs[1].type
    ordered = _ordered(op, x)
    new = prod(weight.sizes()[: len(weight.axes) - len(op.over)])
    width = prod(weight.sizes()) // new
    key = f"rows of {inputs[0]} over {' '.join(op.over)}"  # several maps of a value quantize it once
    rows = onnx.once(key, lambda: onnx.op("Reshape", emit_aligned(onnx, inputs[0], x, ordered), [-1, width]))
    bias = [onnx.flat(name, new) for name in inputs[2:]]
    matrix = onnx.weight(inputs[1], "rows", new, width)
    product = FORMATS[matrix.precision].emit_product(onnx, rows, matrix, bias)
    return (onnx.op("Reshape", product, onnx.shape(node.outputs[0].type.axes)),)


@cost.rule(Linear)
def _linear_cost(op: Linear, node: Node) -> Cost:
    x, results = node.inputs[0].type, count(node.outputs[0].type.axes)
    products = results * count(x.axis(name) for name in op.over) * 2
    done = moving(node, products, results if len(node.inputs) == 3 else ZERO)
    return replace(done, reach=Reach(op.over[0], "all"))


@primitive("linear", to="axes", over=optional("axes"), bias=optional("flag"), initial=optional("initial"))
def _linear(
    site: Site,
    x: Value,
    to: tuple[Axis, ...],
    over: tuple[Axis, ...] | None = None,
    bias: bool = True,
    initial: Initialization | None = None,
) -> Value:
    """A linear map from the axes `over` (default: the last) to the axes `to`.

    Weights start Glorot uniform or as `initial`, the bias as 0.
    """
    old = over or (site.last(x),)
    for axis in old:
        if axis not in x.type.axes:
            raise site.refuse(f"its input {x.type} has no axis {axis}")
    bound = sqrt(6 / (prod(axis.size or 1 for axis in old) + prod(axis.size or 1 for axis in to)))
    inputs = [x, site.parameter("weight", (*to, *old), initial or Initial("uniform", bound), outputs=len(to))]
    if bias:
        inputs.append(site.parameter("bias", to, Initial("constant", 0.0)))
    return site.emit(Linear(tuple(axis.name for axis in old)), *inputs)
