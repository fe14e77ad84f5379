"""The frequencies of sinusoids and rotary positions, and the scalings that extend rotary positions to longer texts."""

from dataclasses import dataclass, fields
from math import ceil, floor, log, pi
from typing import ClassVar

BASE = 10000.0
"""The base of Vaswani et al. (2017) and Su et al. (2021)."""

MAX_BASE = 1e15
"""The largest base."""

LEAST, MOST = 1e-9, 1e9
"""The bounds of the numbers of a scaling."""


def frequency(index: int, width: int, base: float = BASE) -> float:
    """The angle per position of element `index` of `width`: base^(-2 floor(index / 2) / width)."""
    return pow(base, -2 * (index // 2) / width)


def frequencies(width: int, base: float = BASE) -> list[float]:
    """The angle per position of each pair of `width` elements."""
    return [frequency(index, width, base) for index in range(0, width, 2)]


@dataclass(frozen=True)
class _Factor:
    """What all scalings have: the factor by which texts are longer. The fields are arguments of `rope`.

    `least`: the smallest number of elements that can be rotated.
    """

    least: ClassVar[int] = 2
    factor: float

    def attention(self) -> float:
        """The factor of rotated queries and keys."""
        return 1.0

    def mistake(self) -> tuple[str, str] | None:
        """The field that is wrong, and what it must be; None if all fit."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not LEAST <= value <= MOST:
                return field.name, f"must be from {LEAST:g} to {MOST:g}"
        return None if self.factor >= 1 else ("factor", "must be at least 1")


@dataclass(frozen=True)
class Linear(_Factor):
    """Positions divided by `factor` (Chen et al. 2023, position interpolation)."""

    def of(self, width: int, base: float) -> list[float]:
        """The angle per position of each pair of `width` elements."""
        return [value / self.factor for value in frequencies(width, base)]


@dataclass(frozen=True)
class Ntk(_Factor):
    """The base times factor^(n / (n - 2)) for n numbers ("NTK-aware"; Peng et al. 2023, section 3.1).

    The fastest pair keeps its frequency; that of the slowest is divided by `factor`.
    """

    least: ClassVar[int] = 4

    def of(self, width: int, base: float) -> list[float]:
        """The angle per position of each pair of `width` elements."""
        return frequencies(width, base * pow(self.factor, width / (width - 2)))


@dataclass(frozen=True)
class _Original(_Factor):
    """A scaling that depends on the number of positions in the original training."""

    original_positions: float

    def mistake(self) -> tuple[str, str] | None:
        """The field that is wrong, and what it must be; None if all fit."""
        wrong = super().mistake()
        whole = wrong is not None or self.original_positions == int(self.original_positions)
        return wrong if whole else ("original_positions", "must be a whole number")


@dataclass(frozen=True)
class Yarn(_Original):
    """Pairs with at least `beta_fast` turns in the original positions keep their frequency, those with at most
    `beta_slow` divide it by `factor` (YaRN, Peng et al. 2023, section 3.2).

    Between them, the weight of the two is linear in the index of the pair, as in the authors' code; in the paper's
    equation it is linear in the number of turns. `attention_factor` is 0.1 ln(factor) + 1 by default (section 3.4).
    """

    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None

    def of(self, width: int, base: float) -> list[float]:
        """The angle per position of each pair of `width` elements."""
        first = max(floor(self._pair(self.beta_fast, width, base)), 0)
        last = min(ceil(self._pair(self.beta_slow, width, base)), width - 1)
        apart = max(last - first, 0.001)
        divided = [min(max((index - first) / apart, 0.0), 1.0) for index in range(width // 2)]
        plain = frequencies(width, base)
        return [value * (1 - part + part / self.factor) for value, part in zip(plain, divided, strict=True)]

    def _pair(self, turns: float, width: int, base: float) -> float:
        """The pair that makes this many turns in the original positions; between two pairs, a fraction."""
        return width * log(self.original_positions / (turns * 2 * pi)) / (2 * log(base))

    def attention(self) -> float:
        """The factor of rotated queries and keys."""
        return 0.1 * log(self.factor) + 1 if self.attention_factor is None else self.attention_factor

    def mistake(self) -> tuple[str, str] | None:
        """The field that is wrong, and what it must be; None if all fit."""
        wrong = super().mistake()
        if wrong is None and self.beta_fast <= self.beta_slow:
            return "beta_fast", f"must be greater than beta_slow, which is {self.beta_slow:g}"
        return wrong


@dataclass(frozen=True)
class Dynamic(_Original):
    """Position p is rotated as NTK-aware scaling rotates a text of p + 1 positions ("dynamic NTK").

    For n numbers, the base of position p is multiplied by s^(n / (n - 2)), with s = 1 + factor (length / original - 1)
    for length = p + 1, and 1 up to the original positions. A decoder with a cache rotates its keys so, if it reads
    one token at a time: each key keeps the base of the length at which it was written.
    """

    least: ClassVar[int] = 4

    def of(self, width: int, base: float) -> list[float]:
        """The angle per position of each pair of `width` elements, up to the original positions."""
        return frequencies(width, base)

    def growth(self, width: int) -> tuple[list[float], float, float]:
        """Exponents, a slope and a bound: later angles are multiplied by s^exponent, s = 1 + slope * (p - bound)."""
        exponents = [-2 * index / (width - 2) for index in range(width // 2)]
        return exponents, self.factor / self.original_positions, self.original_positions - 1


@dataclass(frozen=True)
class Llama3(_Original):
    """Pairs with more than `high_frequency_factor` turns in the original positions keep their frequency, those with
    fewer than `low_frequency_factor` divide it by `factor`, and between them it is interpolated (Llama 3.1).

    Source: `apply_scaling` in Meta's llama-models, models/llama3/model.py.
    """

    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0

    def of(self, width: int, base: float) -> list[float]:
        """The angle per position of each pair of `width` elements."""
        return [self._scaled(value) for value in frequencies(width, base)]

    def _scaled(self, value: float) -> float:
        turns = self.original_positions * value / (2 * pi)
        span = self.high_frequency_factor - self.low_frequency_factor
        kept = min(max((turns - self.low_frequency_factor) / span, 0.0), 1.0)
        return value * (kept + (1 - kept) / self.factor)

    def mistake(self) -> tuple[str, str] | None:
        """The field that is wrong, and what it must be; None if all fit."""
        wrong = super().mistake()
        if wrong is None and self.high_frequency_factor <= self.low_frequency_factor:
            lower = f"low_frequency_factor, which is {self.low_frequency_factor:g}"
            return "high_frequency_factor", f"must be greater than {lower}"
        return wrong


Scaling = Linear | Ntk | Dynamic | Yarn | Llama3

SCALINGS: dict[str, type[Scaling]] = {"linear": Linear, "ntk": Ntk, "dynamic": Dynamic, "yarn": Yarn, "llama3": Llama3}
"""The scalings by name."""
