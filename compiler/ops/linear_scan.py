"""The states of a linear recurrence at all positions, and the states before them; only training has these ops."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import Cost, Reach, per_result
from xformc.compiler.graph.graph import Node, Op
from xformc.compiler.graph.rules import TorchNamespace, cost, mixes, require, to_torch, types
from xformc.compiler.ops.layout import aligner


@dataclass(frozen=True)
class LinearScan(Op):
    """`s[t] = factor[t] * s[t-1] + x[t]` for every position t in order, or from the last to the first.

    Inputs: x with the axes of the states; unless `factor` is a number, the factors with some of these axes; if
    `masked`, a mask of the positions, and where it is false the state stays as it is; if `started`, the state before
    the first position, which has one position. Other states start as zero.
    """

    kind: ClassVar[str] = "linear_scan"
    positions: str
    reverse: bool
    factor: float | None
    masked: bool
    started: bool


@dataclass(frozen=True)
class Previous(Op):
    """`s[t-1]`, or `s[t+1]` if `reverse`: the states before each position. Inputs: the states; if `started`, the state
    before the first position, zero otherwise.
    """

    kind: ClassVar[str] = "previous"
    positions: str
    reverse: bool
    started: bool


@types.rule(LinearScan)
def _linear_scan_types(op: LinearScan, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    x, *rest = inputs
    require(op.positions in x.names, f"{x} has no axis {op.positions}")
    require(len(rest) == (op.factor is None) + op.masked + op.started, f"found {len(inputs)} inputs")
    for other in rest[: len(rest) - op.started]:
        require(set(other.axes) <= set(x.axes), f"{other} has axes that {x} lacks")
    _check_start(op, rest[len(rest) - op.started :], x)
    return (x,)


@types.rule(Previous)
def _previous_types(op: Previous, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    x, *start = inputs
    require(op.positions in x.names, f"{x} has no axis {op.positions}")
    require(len(start) == op.started, f"found {len(inputs)} inputs")
    _check_start(op, start, x)
    return (x,)


def _check_start(op: LinearScan | Previous, start: list[Type], x: Type) -> None:
    wanted = Type(x.dtype, tuple(Axis(axis.name, 1) if axis.name == op.positions else axis for axis in x.axes))
    require(all(item == wanted for item in start), f"the scan starts from {wanted}, found {', '.join(map(str, start))}")


@to_torch.rule(LinearScan)
def _linear_scan_torch(op: LinearScan, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    x = node.inputs[0].type
    align = [aligner(value.type, x) for value in node.inputs[1 : len(node.inputs) - op.started]]
    axis = x.names.index(op.positions)

    def apply(x: Any, *rest: Any) -> Any:
        given = [function(value) for function, value in zip(align, rest, strict=False)]
        factors = given[0] if op.factor is None else x.new_full([1] * x.dim(), op.factor)
        if op.masked:
            x, factors = x.masked_fill(~given[-1], 0.0), torch.torch.where(given[-1], factors, 1.0)
        start = rest[-1] if op.started else torch.torch.zeros_like(x.narrow(axis, 0, 1))
        return torch.linear_scan(x, factors, start, axis, op.reverse)

    return apply


@to_torch.rule(Previous)
def _previous_torch(op: Previous, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    axis = node.inputs[0].type.names.index(op.positions)

    def apply(states: Any, start: Any = None) -> Any:
        first = torch.torch.zeros_like(states.narrow(axis, 0, 1)) if start is None else start.to(states.dtype)
        parts = [first, states.narrow(axis, int(op.reverse), states.shape[axis] - 1)]
        return torch.torch.cat(parts[::-1] if op.reverse else parts, axis)

    return apply


def _along_positions(op: LinearScan | Previous, node: Node) -> frozenset[str]:
    return frozenset({op.positions})


for _op in (LinearScan, Previous):
    mixes.rule(_op)(_along_positions)


@cost.rule(LinearScan)
def _linear_scan_cost(op: LinearScan, node: Node) -> Cost:
    """Twice the additions and three times the products of the loop (Blelloch, 1990)."""
    return replace(per_result(5)(op, node), reach=Reach(op.positions, "serial", not op.reverse, op.reverse))


@cost.rule(Previous)
def _previous_cost(op: Previous, node: Node) -> Cost:
    return replace(per_result(0)(op, node), reach=Reach(op.positions, "local", not op.reverse, op.reverse))
