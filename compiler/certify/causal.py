"""Checks that no value at a position depends on later positions, whatever those hold.

The logits may hide such a dependence: a gate may be zero, or the difference small. So the training form runs with every
value exchanged at later positions, in each node, and every value at earlier positions must stay as it is.
"""

import torch

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.backends.torch.node_steps import Operators, run_steps
from xformc.compiler.backends.torch.parameter_paths import parameters_by_path
from xformc.compiler.certify.difference import difference
from xformc.compiler.certify.locate import keys_of
from xformc.compiler.certify.subject import Feeds
from xformc.compiler.graph.graph import Node, Value


def first_dependent(module: TorchModule, time: str, feeds: Feeds, bound: float) -> tuple[float, Node | None]:
    """The first node with a value along `time` that depends on later positions by more than `bound`; else None.

    Returned with the difference: that of the node, or else the largest.
    """
    keys, worst, length = keys_of(module.graph, time), 0.0, feeds[time].shape[1]
    compared = [node for node in module.graph.nodes if _compared(node.outputs[0], time, keys)]
    with torch.inference_mode():
        known = _exchanged(module, time, feeds, length)  # nothing is, but sums are in the same order
        for first in sorted({1, length // 2, length - 1} - {0}):
            found = _exchanged(module, time, feeds, first)
            for node in compared:
                value = node.outputs[0]
                earlier = (slice(None),) * value.type.names.index(time) + (slice(first),)
                changed = difference(found[value.name][earlier].numpy(), known[value.name][earlier].numpy())
                worst = max(worst, changed)
                if changed > bound:
                    return changed, node
    return worst, None


def _exchanged(module: TorchModule, time: str, feeds: Feeds, first: int) -> dict[str, torch.Tensor]:
    """All values of the training form, those at the position `first` and later exchanged after each node."""
    graph, operators = module.graph, Operators(module, {})
    keys, values = keys_of(graph, time), dict[str, torch.Tensor](parameters_by_path(module))
    for value in graph.inputs:
        given = torch.tensor(feeds[value.name])
        values[value.name] = _exchange(given, value, time, first) if time in value.type.names else given
    for node in graph.nodes:
        run_steps((operators.step(node),), values)
        for value in node.outputs:
            if _compared(value, time, keys):
                values[value.name] = _exchange(values[value.name], value, time, first)
    return values


def _exchange(x: torch.Tensor, value: Value, time: str, first: int) -> torch.Tensor:
    """The value with those of other rows and positions from `first` on; with random numbers if all are equal."""
    axis = value.type.names.index(time)
    other = x.flip(axis)
    if value.type.names[0] == "batch":
        other = other.roll(1, 0)
    if x.dtype == torch.float32 and torch.equal(other, x):
        other = x + torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    later = torch.arange(x.shape[axis]) >= first
    return torch.where(later.reshape(-1, *[1] * (x.dim() - axis - 1)), other, x)


def _compared(value: Value, time: str, keys: frozenset[str]) -> bool:
    names = value.type.names
    return value.type.dtype == "float32" and time in names and not keys.intersection(names)
