"""The cost of a node as polynomials in the sizes of axes, and its reach along positions."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from xformc.compiler.graph.axes import Axis, DType, Type
from xformc.compiler.graph.graph import Node, Value

BYTES: dict[DType, int] = {"float32": 4, "float16": 2, "int64": 8, "int32": 4, "int8": 1, "bool": 1}

Monomial = tuple[Axis, ...]
"""A product of axes, sorted by name; an axis may occur several times."""


@dataclass(frozen=True)
class Polynomial:
    """A sum of products of axis sizes, with integer coefficients."""

    terms: tuple[tuple[Monomial, int], ...] = ()

    def __add__(self, other: "Polynomial") -> "Polynomial":
        return _merge((self, other))

    def __mul__(self, other: "Polynomial | int") -> "Polynomial":
        factors: Iterable[tuple[Monomial, int]] = [((), other)] if isinstance(other, int) else other.terms
        return _merge(_product(a + b, m * n) for a, m in self.terms for b, n in factors)

    def at(self, sizes: Mapping[str, int]) -> int:
        """Evaluate it for these run-time sizes. Raises: KeyError if a size is missing."""
        return sum(
            times * prod(sizes[axis.name] if axis.size is None else axis.size for axis in axes)
            for axes, times in self.terms
        )


ZERO = Polynomial()
ONE = Polynomial((((), 1),))


def count(axes: Iterable[Axis]) -> Polynomial:
    """The number of elements of a value with these axes. Axes of size 1 are left out."""
    return _product((axis for axis in axes if axis.size != 1), 1)


def _product(axes: Iterable[Axis], times: int) -> Polynomial:
    return Polynomial(((tuple(sorted(axes, key=lambda axis: (axis.name, axis.size or 0))), times),))


def _merge(polynomials: Iterable[Polynomial]) -> Polynomial:
    sums: dict[Monomial, int] = {}
    for polynomial in polynomials:
        for axes, times in polynomial.terms:
            sums[axes] = sums.get(axes, 0) + times
    return Polynomial(tuple((axes, times) for axes, times in sums.items() if times))


@dataclass(frozen=True)
class Reach:
    """How an op carries information along an axis of positions.

    `all`: every position reaches every other in one operation. `local`: a position sees up to `before` positions before
    and `after` positions after its own, `dilation` apart; `width` is k or r in Table 1 of Vaswani et al. (2017).
    `serial`: from each position to the next (if `before`) or the previous one, one operation after another.
    """

    axis: str
    kind: Literal["all", "local", "serial"]
    before: int = 0
    after: int = 0
    width: Axis | None = None
    dilation: int = 1


@dataclass(frozen=True)
class Cost:
    """The cost of one node.

    `products`: floating-point operations in matrix products and convolutions; a multiply-add counts as two. `others`:
    all other operations, one per elementwise function and per addition. `read` and `written`: bytes. `sequential`:
    operations that must run one after another. `reach`: how it mixes positions.
    """

    products: Polynomial = ZERO
    others: Polynomial = ZERO
    read: Polynomial = ZERO
    written: Polynomial = ZERO
    sequential: Polynomial = ONE
    reach: Reach | None = None

    @property
    def flops(self) -> Polynomial:
        """All floating-point operations."""
        return self.products + self.others

    @property
    def bytes(self) -> Polynomial:
        """All bytes read and written."""
        return self.read + self.written

    def times(self, factor: Polynomial) -> "Cost":
        """The cost of `factor` of them, one after another."""
        return Cost(
            self.products * factor,
            self.others * factor,
            self.read * factor,
            self.written * factor,
            self.sequential * factor,
        )


def total(costs: Iterable[Cost]) -> Cost:
    """The sum of the costs, one after another."""
    every = list(costs)
    return Cost(
        _merge(cost.products for cost in every),
        _merge(cost.others for cost in every),
        _merge(cost.read for cost in every),
        _merge(cost.written for cost in every),
        _merge(cost.sequential for cost in every),
    )


FREE = Cost(sequential=ZERO)
"""The cost of an op that only renames or reorders axes and moves no data."""


def size_in_bytes(type: Type) -> Polynomial:
    """The size of a value in bytes."""
    return count(type.axes) * BYTES[type.dtype]


def moving(node: Node, products: Polynomial = ZERO, others: Polynomial = ZERO) -> Cost:
    """The cost of a node that reads all its inputs and writes all its results."""
    return Cost(products, others, _bytes(node.inputs), _bytes(node.outputs))


def per_result(times: int) -> Callable[[Any, Node], Cost]:
    """The cost rule of ops that perform `times` operations per element of their first result."""
    return lambda op, node: moving(node, others=count(node.outputs[0].type.axes) * times)


def _bytes(values: Iterable[Value]) -> Polynomial:
    return _merge(size_in_bytes(value.type) for value in values)
