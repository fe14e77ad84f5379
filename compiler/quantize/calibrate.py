"""Calibration: in which steps the products of 8-bit weights round what they are given, from examples.

The training form is run on the examples, and what goes into each product is counted in a histogram; of steps between
that for the largest number and far smaller ones, the one with the least mean squared error is taken (Nagel et al. 2021,
A White Paper on Neural Network Quantization, section 3.1). A weight has one step, wherever and however often a model
uses it: in every turn of a recurrence, in every layer that shares it.
"""

from collections.abc import Callable, Mapping, Sequence
from math import frexp
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import linear

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.backends.torch.operators import LinearMap
from xformc.compiler.quantize.rounded_linear import ROUND
from xformc.compiler.quantize.rounding import LARGEST_FLOAT8
from xformc.errors import UserError
from xformc.format.precision import Precision

RULE = "mse"
"""What engine.json calls it."""

EXAMPLES = 512
"""The most examples that a calibration takes; more change steps little."""

BINS = 8192
LARGEST: Mapping[Precision, int] = {"int8": 127, "float8": LARGEST_FLOAT8}
"""The number that the largest of a symmetric range becomes."""

_CANDIDATES = 2.0 ** -(torch.arange(64, dtype=torch.float64) / 8)
"""The largest numbers that are not cut off, as parts of the largest number: down to about a 235th."""

_LEAST = 2.0**-126
"""The smallest normal float32."""

_NOT_FINITE = "weights or examples have numbers that are too large, or weights that are not numbers"

Example = Mapping[str, NDArray[Any]]
"""The inputs of the training graph by name; none of the positions is padding."""


def calibrated_weights(
    weights: Mapping[str, Precision], maps: frozenset[str], *, examples: bool
) -> dict[str, Precision]:
    """Of these weights those whose products take a calibrated step: float8, and with `examples` int8.

    `maps` are the weights of linear maps.
    """
    wanted = LARGEST if examples else ("float8",)
    return {name: precision for name, precision in weights.items() if precision in wanted and name in maps}


def calibrate(
    module: TorchModule,
    weights: Mapping[str, Precision],
    examples: Sequence[Example],
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, float]:
    """The step for each of these weights, int8 or float8, of the products with it.

    Raises: UserError where the model computes numbers that are not finite.
    """
    if not weights:
        return {}
    histograms = {name: Histogram() for name in weights}
    maps = {name: _counting(histogram) for name, histogram in histograms.items()}
    counted = TorchModule(module.graph, maps=maps).eval()
    counted.load_state_dict(module.state_dict())
    with torch.inference_mode():
        for index, example in enumerate(examples, start=1):
            progress(f"calibrate: {index} of {len(examples)}")
            counted(*(torch.tensor(example[value.name]) for value in module.graph.inputs))
    return {name: step_of(histograms[name], precision) for name, precision in weights.items()}


class Histogram:
    """How many numbers of each size there were, without their signs: in bins of one width, below a power of two.

    The power grows as larger numbers come, and neighbouring bins become one; the memory does not grow.
    """

    def __init__(self) -> None:
        self.counts = torch.zeros(BINS, dtype=torch.int64)
        self.largest, self._end = 0.0, _LEAST

    def add(self, numbers: Tensor) -> None:
        """Count these numbers. Raises: UserError for one that is not finite."""
        sizes = numbers.detach().abs().flatten().double()
        largest = float(sizes.max()) if len(sizes) else 0.0
        if not largest < float("inf"):
            raise UserError("the model computes numbers that are not finite from the examples", hint=_NOT_FINITE)
        self.largest = max(self.largest, largest)
        if largest >= self._end:
            self._widen(2.0 ** frexp(largest)[1])
        self.counts += torch.bincount((sizes * (BINS / self._end)).long(), minlength=BINS)

    def middles(self) -> Tensor:
        """The middle of each bin, float64 [BINS]."""
        return (torch.arange(BINS, dtype=torch.float64) + 0.5) * (self._end / BINS)

    def _widen(self, end: float) -> None:
        merged = self.counts.reshape(-1, int(min(end / self._end, BINS))).sum(1)
        self.counts = torch.nn.functional.pad(merged, (0, BINS - len(merged)))
        self._end = end


def step_of(histogram: Histogram, precision: Precision) -> float:
    """The step, a positive float32, of least mean squared error when such numbers are rounded to this precision."""
    if not histogram.largest:
        return 1.0
    seen = histogram.counts > 0
    counts, sizes = histogram.counts[seen].double(), histogram.middles()[seen]
    steps = (histogram.largest * _CANDIDATES / LARGEST[precision]).float().clamp_min(_LEAST)
    errors = [_error(sizes, counts, float(step), precision) for step in steps]
    return float(steps[int(torch.tensor(errors).argmin())])


def _error(sizes: Tensor, counts: Tensor, step: float, precision: Precision) -> float:
    rounded = ROUND[precision](sizes / step).double() * step
    return float(((rounded - sizes) ** 2 * counts).sum())


def _counting(histogram: Histogram) -> LinearMap:
    def apply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        histogram.add(x)
        return linear(x, weight, bias)

    return apply
