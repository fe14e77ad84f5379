"""Calibration: computes scales for quantizing the inputs of matrix products, from examples.

The training form runs on the examples and counts the inputs of each matrix product in a histogram. The scale is the one
with the smallest mean squared error, among candidates from the scale of the largest number down to far smaller ones
(Nagel et al. 2021, A White Paper on Neural Network Quantization, section 3.1). A weight has one input scale, however
often the model uses it: at every position of a recurrence, and in every layer that shares it.
"""

from collections.abc import Callable, Mapping, Sequence
from math import frexp
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import linear

from xformc.compiler.graph.graph import Graph
from xformc.compiler.quantize.formats import FORMATS
from xformc.compiler.quantize.number_format import Grid, LinearMap
from xformc.errors import UserError
from xformc.format.precision import Precision

RULE = "mse"
"""The name of the calibration rule in engine.json."""

EXAMPLES = 512
"""The maximum number of calibration examples; more hardly change the scales."""

BINS = 8192

_CANDIDATES = 2.0 ** -(torch.arange(64, dtype=torch.float64) / 8)
"""Clipping thresholds as fractions of the largest number, down to about 1/235."""

_LEAST = 2.0**-126
"""The smallest normal float32."""

_NOT_FINITE = "the weights or examples are too large, or weights are NaN"

Example = Mapping[str, NDArray[Any]]
"""The inputs of the training graph by name, without padding."""


class TrainingForm(Protocol):
    """A graph as a PyTorch module."""

    @property
    def graph(self) -> Graph:
        """The graph that it computes."""
        ...

    def with_maps(self, maps: Mapping[str, LinearMap]) -> Callable[..., Any]:
        """The module with some linear maps replaced, by the names of their weights."""
        ...


def calibrated_weights(
    weights: Mapping[str, Precision], maps: frozenset[str], *, examples: bool
) -> dict[str, Precision]:
    """The weights whose matrix products need a calibrated scale: with `examples` all that can use one, otherwise only
    those that require one.

    `maps` are the names of weights of linear maps.
    """
    wanted = {name for name, format in FORMATS.items() if format.calibrated_only or (examples and format.grid)}
    return {name: precision for name, precision in weights.items() if precision in wanted and name in maps}


def calibrate(
    module: TrainingForm,
    weights: Mapping[str, Precision],
    examples: Sequence[Example],
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, float]:
    """The input scale of each of these weights.

    Raises: UserError if the model computes numbers that are not finite.
    """
    if not weights:
        return {}
    histograms = {name: Histogram() for name in weights}
    maps = {name: _counting(histogram) for name, histogram in histograms.items()}
    counted = module.with_maps(maps)
    with torch.inference_mode():
        for index, example in enumerate(examples, start=1):
            progress(f"calibrate: {index} of {len(examples)}")
            counted(*(torch.tensor(example[value.name]) for value in module.graph.inputs))
    return {name: scale_of(histograms[name], _grid(precision)) for name, precision in weights.items()}


class Histogram:
    """A histogram of absolute values, with bins of equal width up to a power of 2.

    The power grows as larger numbers come, and adjacent bins are merged, so that memory stays constant.
    """

    def __init__(self) -> None:
        self.counts = torch.zeros(BINS, dtype=torch.int64)
        self.largest, self._end = 0.0, _LEAST

    def add(self, numbers: Tensor) -> None:
        """Count these numbers. Raises: UserError if one is not finite."""
        sizes = numbers.detach().abs().flatten().double()
        largest = float(sizes.max()) if len(sizes) else 0.0
        if not largest < float("inf"):
            raise UserError("the model computes numbers that are not finite on the examples", hint=_NOT_FINITE)
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


def scale_of(histogram: Histogram, grid: Grid) -> float:
    """The scale, a positive float32, with the smallest mean squared error of quantizing these numbers to the grid."""
    if not histogram.largest:
        return 1.0
    seen = histogram.counts > 0
    counts, sizes = histogram.counts[seen].double(), histogram.middles()[seen]
    scales = (histogram.largest * _CANDIDATES / grid.largest).float().clamp_min(_LEAST)
    errors = [_error(sizes, counts, float(scale), grid) for scale in scales]
    return float(scales[int(torch.tensor(errors).argmin())])


def _grid(precision: Precision) -> Grid:
    grid = FORMATS[precision].grid
    assert grid is not None, f"products with {precision} are not calibrated"
    return grid


def _error(sizes: Tensor, counts: Tensor, scale: float, grid: Grid) -> float:
    rounded = grid.nearest(torch, sizes / scale).double() * scale
    return float(((rounded - sizes) ** 2 * counts).sum())


def _counting(histogram: Histogram) -> LinearMap:
    def apply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        histogram.add(x)
        return linear(x, weight, bias)

    return apply
