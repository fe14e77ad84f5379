"""How a spec initializes a parameter, before the axes of the parameter are known."""

from dataclasses import dataclass
from math import prod, sqrt
from typing import Literal, get_args

from xformc.compiler.graph.axes import Axis
from xformc.compiler.graph.graph import Initial
from xformc.compiler.graph.rules import RuleError

InitialKind = Literal[
    "constant",
    "normal",
    "uniform",
    "identity",
    "orthogonal",
    "glorot_uniform",
    "glorot_normal",
    "kaiming_uniform",
    "kaiming_normal",
]
KINDS: tuple[InitialKind, ...] = get_args(InitialKind)
ALONE: dict[str, tuple[InitialKind, float]] = {
    "zero": ("constant", 0.0),
    "one": ("constant", 1.0),
    "identity": ("identity", 1.0),
    "orthogonal": ("orthogonal", 1.0),
    "glorot_uniform": ("glorot_uniform", 1.0),
    "glorot_normal": ("glorot_normal", 1.0),
    "kaiming_uniform": ("kaiming_uniform", sqrt(2)),
    "kaiming_normal": ("kaiming_normal", sqrt(2)),
}
"""The words that need no number."""


@dataclass(frozen=True)
class Initialization:
    """The value of a constant, a normal deviation, a uniform bound, or the factor (gain) of any other kind.

    Glorot and Bengio (2010, equation 16) divide by the mean of a matrix's inputs and outputs, He et al. (2015, equation
    10) by its inputs.
    """

    kind: InitialKind
    value: float

    def of(self, axes: tuple[Axis, ...], outputs: int) -> Initial:
        """The initial values of a parameter whose first `outputs` axes are outputs. Raises: RuleError for a misfit."""
        sizes = [axis.size or 1 for axis in axes]
        rows, columns = prod(sizes[:outputs]), prod(sizes[outputs:])
        kind, value = self.kind, self.value
        if kind in ("normal", "uniform") and value < 0:
            raise RuleError(f"the {'deviation' if kind == 'normal' else 'bound'} must not be negative, found {value:g}")
        if kind in ("constant", "normal", "uniform"):
            return Initial(kind, value)
        if kind in ("identity", "orthogonal"):
            if len(axes) < 2 or (kind == "identity" and rows != columns):
                wanted = "a matrix with as many inputs as outputs" if kind == "identity" else "a matrix"
                raise RuleError(f"{kind} needs {wanted}, found [{', '.join(map(str, axes))}]")
            return Initial(kind, value, rows)
        fan = (rows + columns) / 2 if kind.startswith("glorot") else columns
        deviation = value / sqrt(fan)
        return Initial("uniform", sqrt(3) * deviation) if kind.endswith("uniform") else Initial("normal", deviation)
