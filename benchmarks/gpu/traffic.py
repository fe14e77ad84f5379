"""The bytes that a step of decoding must move, whatever runs it."""

from collections import defaultdict
from collections.abc import Iterable

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.cost import count
from xformc.compiler.passes.step import Decoder


def bytes_of_step(decoder: Decoder, item: int, *, batch: int, beam: int, source: int, length: int) -> int:
    """Bytes of a mean step of an output of `length` tokens, numbers having `item` bytes: each weight is read once, the
    keys and values of the source are read once for each sentence, those of the target for each hypothesis as far as
    they are filled, which is half the length.

    `decoder` has the axis `beam`. What is written, and all values in between, could stay in the device's caches, and is
    not counted; so the time of these bytes is a bound that no implementation passes.
    """
    rows = {"batch": batch, "beam": beam}
    weights = sum(count(parameter.type.axes).at({}) for parameter in decoder.step.parameters)
    constants = _numbers((value.type for value in decoder.prepared), rows, source)
    states = _numbers((state.past.type for state in decoder.states), rows, (length + 1) // 2)
    return item * (weights + constants + states)


def _numbers(types: Iterable[Type], rows: dict[str, int], positions: int) -> int:
    """How many numbers values of these types have, axes without a size but those of `rows` having so many positions."""
    sizes = defaultdict(lambda: positions, rows)
    return sum(count(type.axes).at(sizes) for type in types if type.dtype == "float32")
