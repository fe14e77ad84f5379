"""Primitives for parameters: learned values, and random values that are drawn once and kept."""

from xformc.compiler.graph.axes import Axis
from xformc.compiler.graph.graph import Initial, Value
from xformc.compiler.graph.initialization import Initialization
from xformc.compiler.graph.primitives import Site, optional, primitive
from xformc.compiler.ops.reduction import Reduce

NUMBER = Axis("number", 1)
"""The axis of a parameter that is a number: parameters without axes cannot be sharded."""


@primitive("weight", on=None, axes=optional("axes"), initial=optional("initial"))
def _weight(site: Site, x: Value, axes: tuple[Axis, ...] = (), initial: Initialization | None = None) -> Value:
    """A learned value with these axes, independent of `x`. It starts normal with deviation (last size)^-0.5, or as
    `initial`. Without axes it is a number, whose `initial` must be said."""
    if axes:
        return site.parameter("weight", axes, initial or Initial("normal", (axes[-1].size or 1) ** -0.5))
    if initial is None:
        raise site.refuse("a weight needs axes, or, as a number, its initial value", "write weight: {initial: 1}")
    return site.emit(Reduce("first", NUMBER.name), site.parameter("weight", (NUMBER,), initial))


@primitive("random_weight", on=None, axes="axes", initial=optional("initial"))
def _random_weight(site: Site, x: Value, axes: tuple[Axis, ...], initial: Initialization | None = None) -> Value:
    """A value with these axes, independent of `x`: drawn once, standard normal or as `initial`, and never trained."""
    return site.parameter("weight", axes, initial or Initial("normal", 1.0), trained=False)
