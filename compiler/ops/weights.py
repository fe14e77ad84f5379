"""Primitives for parameters: learned values, and random values that are drawn once and kept."""

from xformc.compiler.graph.axes import Axis
from xformc.compiler.graph.graph import Initial, Value
from xformc.compiler.graph.initialization import Initialization
from xformc.compiler.graph.primitives import Site, optional, primitive


@primitive("weight", on=None, axes="axes", initial=optional("initial"))
def _weight(site: Site, x: Value, axes: tuple[Axis, ...], initial: Initialization | None = None) -> Value:
    """A learned value with these axes, independent of `x`. It starts normal with deviation (last size)^-0.5, or as
    `initial`."""
    return site.parameter("weight", axes, initial or Initial("normal", (axes[-1].size or 1) ** -0.5))


@primitive("random_weight", on=None, axes="axes", initial=optional("initial"))
def _random_weight(site: Site, x: Value, axes: tuple[Axis, ...], initial: Initialization | None = None) -> Value:
    """A value with these axes, independent of `x`: drawn once, standard normal or as `initial`, and never trained."""
    return site.parameter("weight", axes, initial or Initial("normal", 1.0), trained=False)
