"""What a node costs, as polynomials in the sizes of axes, and how far it carries what a position knows."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from xformc.compiler.graph.axes import Axis, DType, Type
from xformc.compiler.graph.graph import Node, Value

BYTES: dict[DType, int] = {"float32": 4, "float16": 2, "int64": 8, "bool": 1}

Monomial = tuple[Axis, ...]
"""A product of axes, in the order of their names; an axis may be in it several times."""


@dataclass(frozen=True)
class Polynomial:
    """A sum of products of the sizes of axes, each times a whole number."""

    terms: tuple[tuple[Monomial, int], ...] = ()

    def __add__(self, other: "Polynomial") -> "Polynomial":
        return _merge((self, other))

    def __mul__(self, other: "Polynomial | int") -> "Polynomial":
        factors: Iterable[tuple[Monomial, int]] = [((), other)] if isinstance(other, int) else other.terms
        return _merge(_product(a + b, m * n) for a, m in self.terms for b, n in factors)

    def at(self, sizes: Mapping[str, int]) -> int:
        """The number, given the sizes that only the run knows. Raises: KeyError for one that is missing."""
        return sum(
            times * prod(sizes[axis.name] if axis.size is None else axis.size for axis in axes)
            for axes, times in self.terms
        )


ZERO = Polynomial()
ONE = Polynomial((((), 1),))


def count(axes: Iterable[Axis]) -> Polynomial:
    """How many numbers a value with these axes has. An axis of size 1 is no factor."""
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

    `all`: every position learns of every other in one operation. `local`: it learns of those up to `before` positions
    before and `after` positions after its own, `dilation` apart; `width` is what Table 1 of Vaswani et al. (2017) calls
    k or r. `serial`: from each position to the next (if `before`) or the one before, one operation after another.
    """

    axis: str
    kind: Literal["all", "local", "serial"]
    before: int = 0
    after: int = 0
    width: Axis | None = None
    dilation: int = 1


@dataclass(frozen=True)
class Cost:
    """What one node costs.

    `products`: floating-point operations in matrix products and convolutions, a multiplication and its addition
    being two. `others`: all further ones, one for each function of a number, and for each addition. `read` and
    `written`: bytes. `sequential`: operations that can only be done one after another. `reach`: how it mixes positions.
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
        """All bytes that are moved."""
        return self.read + self.written

    def times(self, factor: Polynomial) -> "Cost":
        """The cost of so many of it, one after another."""
        return Cost(
            self.products * factor,
            self.others * factor,
            self.read * factor,
            self.written * factor,
            self.sequential * factor,
        )


def total(costs: Iterable[Cost]) -> Cost:
    """The cost of all of them together, one after another."""
    every = list(costs)
    return Cost(
        _merge(cost.products for cost in every),
        _merge(cost.others for cost in every),
        _merge(cost.read for cost in every),
        _merge(cost.written for cost in every),
        _merge(cost.sequential for cost in every),
    )


FREE = Cost(sequential=ZERO)
"""Of an op that gives what it was given, its axes named or ordered in another way, and moves nothing."""


def size_in_bytes(type: Type) -> Polynomial:
    """The bytes of a value."""
    return count(type.axes) * BYTES[type.dtype]


def moving(node: Node, products: Polynomial = ZERO, others: Polynomial = ZERO) -> Cost:
    """The cost of a node that reads all its inputs and writes all its results."""
    return Cost(products, others, _bytes(node.inputs), _bytes(node.outputs))


def per_result(times: int) -> Callable[[Any, Node], Cost]:
    """The rule of ops that do so many operations for each number of their first result."""
    return lambda op, node: moving(node, others=count(node.outputs[0].type.axes) * times)


def _bytes(values: Iterable[Value]) -> Polynomial:
    return _merge(size_in_bytes(value.type) for value in values)
