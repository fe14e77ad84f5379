"""The matrix product that a value comes from."""

from collections.abc import Callable, Mapping

from xformc.compiler.graph.graph import Node, Value
from xformc.compiler.ops.linear import Linear
from xformc.format.precision import Precision

PrecisionOf = Callable[[str], Precision]
"""The precision in which a parameter is stored, by its name."""


def maker(value: Value, producers: Mapping[str, Node], precision_of: PrecisionOf) -> Precision | None:
    """The number format of the matrix product that a value comes from; None if it comes from none."""
    node = producers.get(value.name)
    while node is not None and not isinstance(node.op, Linear):
        node = producers.get(node.inputs[0].name) if node.inputs else None
    return None if node is None else precision_of(node.inputs[1].name)
