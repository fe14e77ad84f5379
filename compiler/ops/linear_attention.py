"""Queries on running sums of outer products, without the sums themselves; only training has this op."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import Cost, Reach, count, moving
from xformc.compiler.graph.graph import Node, Op
from xformc.compiler.graph.rules import TorchNamespace, cost, mixes, require, to_torch, types
from xformc.compiler.ops.layout import aligner, union

CHUNK = 64
"""Positions that are computed by matrix products among each other."""


@dataclass(frozen=True)
class LinearAttention(Op):
    """`y[t] = sum over w of query[t, w] * s[t, w]`, for `s[t] = factor[t] * s[t-1] + key[t, w] * value[t]`.

    The sum is over the axis `width` of query and key; axes are matched by name. Inputs: query, key, value and, unless
    `factor` is a number, the factors, which have no axis that only the value has. `axes` are those of the result, in
    order.
    """

    kind: ClassVar[str] = "linear_attention"
    positions: str
    width: str
    factor: float | None
    axes: tuple[str, ...]


@dataclass(frozen=True)
class _Plan:
    """The orders of axes for matrix products: [batch.., positions, width] and [batch.., positions, columns..]."""

    batch: tuple[Axis, ...]
    rows: Axis
    width: Axis
    columns: tuple[Axis, ...]

    def type(self, *last: Axis) -> Type:
        """The type with these axes after those of the batch."""
        return Type("float32", (*self.batch, *last))


def _plan(op: LinearAttention, inputs: tuple[Type, ...]) -> _Plan:
    query, key, value, *factors = inputs
    columns = tuple(axis for axis in value.axes if axis.name not in (*key.names, *query.names))
    apart = {op.positions, op.width, *(axis.name for axis in columns)}
    every = union(union(query.axes, key.axes), value.axes)
    for type in factors:
        require(not {axis.name for axis in columns} & {*type.names}, f"the factors {type} have an axis of the value")
        every = union(every, type.axes)
    return _Plan(
        tuple(axis for axis in every if axis.name not in apart), key.axis(op.positions), key.axis(op.width), columns
    )


@types.rule(LinearAttention)
def _linear_attention_types(op: LinearAttention, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    query, key, value = inputs[:3]
    require(len(inputs) == 3 + (op.factor is None), f"found {len(inputs)} inputs")
    for type in (query, key, value):
        require(op.positions in type.names, f"{type} has no axis {op.positions}")
    require(op.width in query.names and op.width in key.names, f"{query} and {key} need the axis {op.width}")
    require(op.width not in value.names, f"the value {value} has the axis {op.width}")
    plan = _plan(op, inputs)
    made = {axis.name: axis for axis in (*plan.batch, plan.rows, *plan.columns)}
    require(made.keys() == {*op.axes}, f"the result has the axes {', '.join(made)}")
    return (Type(value.dtype, tuple(made[name] for name in op.axes)),)


@mixes.rule(LinearAttention)
def _linear_attention_mixes(op: LinearAttention, node: Node) -> frozenset[str]:
    return frozenset({op.positions, op.width})


@to_torch.rule(LinearAttention)
def _linear_attention_torch(op: LinearAttention, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    given = tuple(value.type for value in node.inputs)
    plan = _plan(op, given)
    vectors, wide = plan.type(plan.rows, plan.width), plan.type(plan.rows, *plan.columns)
    query, key, value = (aligner(*each) for each in zip(given[:3], (vectors, vectors, wide), strict=True))
    fading = aligner(given[3], vectors) if op.factor is None else None
    restore, leading = aligner(wide, node.outputs[0].type), len(plan.batch) + 1

    def apply(q: Any, k: Any, v: Any, factors: Any = None) -> Any:
        v = value(v)
        if fading is not None:
            factors = fading(factors)
        elif op.factor != 1:
            factors = v.new_full([1] * (leading + 1), op.factor)
        result = torch.linear_attention(query(q), key(k), v.flatten(leading), factors, CHUNK)
        return restore(result.unflatten(-1, v.shape[leading:]))

    return apply


@cost.rule(LinearAttention)
def _linear_attention_cost(op: LinearAttention, node: Node) -> Cost:
    """The products within chunks, and those with the states between them."""
    plan = _plan(op, tuple(value.type for value in node.inputs))
    rows = (*plan.batch, plan.rows)
    within = count((*rows, plan.width)) * CHUNK + count((*rows, *plan.columns)) * CHUNK
    done = moving(node, within * 2 + count((*rows, plan.width, *plan.columns)) * 4)
    return replace(done, reach=Reach(op.positions, "all"))
