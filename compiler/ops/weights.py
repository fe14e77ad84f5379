"""Values that belong to the model itself: learned ones, and random ones that are drawn once and kept."""

from xformc.compiler.graph.axes import Axis
from xformc.compiler.graph.graph import Initial, Value
from xformc.compiler.graph.primitives import Site, primitive


@primitive("weight", on=None, axes="axes")
def _weight(site: Site, x: Value, axes: tuple[Axis, ...]) -> Value:
    """A learned value with these axes, independent of `x`. It starts normal with deviation (last size)^-0.5."""
    return site.parameter("weight", axes, Initial("normal", (axes[-1].size or 1) ** -0.5))


@primitive("random_weight", on=None, axes="axes")
def _random_weight(site: Site, x: Value, axes: tuple[Axis, ...]) -> Value:
    """A constant with these axes, independent of `x`: drawn once from the standard normal, never trained."""
    return site.parameter("weight", axes, Initial("normal", 1.0), trained=False)
