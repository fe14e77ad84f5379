"""Computes the minimum memory traffic of a decoding step."""

from collections import defaultdict
from collections.abc import Iterable

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.cost import count
from xformc.compiler.passes.step import Decoder


def bytes_of_step(decoder: Decoder, item: int, *, batch: int, beam: int, source: int, length: int) -> int:
    """Return the bytes of a mean step for outputs of `length` tokens, with `item` bytes per number.

    Each weight is read once. The keys and values of the source are read once for each sentence, those of the target for
    each hypothesis up to their mean length, which is half of `length`.

    `decoder` has the axis `beam`. Writes and intermediate values are not counted, because they could stay in the
    device's caches. So the time of these bytes is a lower bound for every implementation.
    """
    rows = {"batch": batch, "beam": beam}
    weights = sum(count(parameter.type.axes).at({}) for parameter in decoder.step.parameters)
    constants = _numbers((value.type for value in decoder.prepared), rows, source)
    states = _numbers((state.past.type for state in decoder.states), rows, (length + 1) // 2)
    return item * (weights + constants + states)


def _numbers(types: Iterable[Type], rows: dict[str, int], positions: int) -> int:
    """Return the number of elements of these types; axes without a size, except those of `rows`, have `positions`."""
    sizes = defaultdict(lambda: positions, rows)
    return sum(count(type.axes).at(sizes) for type in types if type.dtype == "float32")
