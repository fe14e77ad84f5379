"""Arithmetic on named sizes, such as `d_model / heads`: numbers, names, + - * / // % ^ ( ) and sqrt."""

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

Number = int | float
Lookup = Callable[[str, "Term"], Number]

LARGEST = 10**15
MAX_LENGTH = 100
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<name>[A-Za-z_]\w*)|(?P<sign>\*\*|//|[-+*/%^()]))"
)
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "//": 2, "%": 2}


class ExpressionError(Exception):
    """The text is not an expression, or has no value; `start` and `end` delimit the wrong part."""

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.message, self.start, self.end = message, start, end


@dataclass(frozen=True)
class Term:
    """A part of an expression: a number, a name, or an operator (including `neg` and `sqrt`) on parts."""

    head: str | int | float
    parts: tuple["Term", ...]
    start: int
    end: int

    def names(self) -> tuple[str, ...]:
        """The names in it, in order."""
        own = (self.head,) if isinstance(self.head, str) and not self.parts else ()
        return (*own, *(name for part in self.parts for name in part.names()))

    def value(self, lookup: Lookup) -> Number:
        """Its value. Raises: ExpressionError if it has none, and what `lookup` raises for a name."""
        value = self._value(lookup)
        if not abs(value) <= LARGEST:
            raise ExpressionError(f"larger than {LARGEST:.0e}", self.start, self.end)
        return value

    def _value(self, lookup: Lookup) -> Number:
        if isinstance(self.head, int | float):
            return self.head
        if not self.parts:
            return lookup(self.head, self)
        try:
            return _OPERATORS[self.head](*(part.value(lookup) for part in self.parts))
        except ZeroDivisionError:
            raise ExpressionError("division by zero", self.start, self.end) from None
        except OverflowError:
            raise ExpressionError(f"larger than {LARGEST:.0e}", self.start, self.end) from None
        except ValueError:
            message = "square root of a negative number" if self.head == "sqrt" else "a power that is no real number"
            raise ExpressionError(message, self.start, self.end) from None


def _divide(a: Number, b: Number) -> Number:
    exact = isinstance(a, int) and isinstance(b, int) and a % b == 0
    return int(a // b) if exact else a / b


def _floor(a: Number, b: Number) -> Number:
    return a // b


def _negate(a: Number) -> Number:
    return -a


def _power(a: Number, b: Number) -> Number:
    value = math.pow(a, b)
    whole = isinstance(a, int) and isinstance(b, int) and b >= 0 and abs(value) <= LARGEST
    return int(a**b) if whole else value


_OPERATORS: dict[str, Callable[..., Number]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "//": _floor,
    "%": operator.mod,
    "^": _power,
    "neg": _negate,
    "sqrt": math.sqrt,
}


@lru_cache(1024)
def parse_expression(text: str) -> Term:
    """Parse a text as an expression. Raises: ExpressionError."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"longer than {MAX_LENGTH} characters", 0, len(text))
    parser = _Parser(text)
    term = parser.sum(0)
    parser.expect("")
    return term


class _Parser:
    """Precedence climbing over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str, int, int]] = []
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None or match.lastgroup is None:
                start = position + len(text[position:]) - len(text[position:].lstrip())
                raise ExpressionError(f"'{text[start]}' is not allowed in arithmetic", start, start + 1)
            kind = match.lastgroup
            if match[kind] == "**":
                raise ExpressionError("write ^ for a power", match.start(kind), match.end(kind))
            self.tokens.append((kind, match[kind], match.start(kind), match.end(kind)))
            position = match.end()
        self.tokens.append(("end", "", len(text), len(text)))
        self.at = 0

    def sum(self, binding: int) -> Term:
        left = self.operand()
        while _PRECEDENCE.get(self.tokens[self.at][1], 0) > binding:
            sign = self.next()[1]
            right = self.sum(_PRECEDENCE[sign])
            left = Term(sign, (left, right), left.start, right.end)
        return left

    def operand(self) -> Term:
        if self.tokens[self.at][1] == "-":
            start = self.next()[2]
            inside = self.operand()
            return Term("neg", (inside,), start, inside.end)
        base = self.atom()
        if self.tokens[self.at][1] != "^":
            return base
        self.next()
        exponent = self.operand()
        return Term("^", (base, exponent), base.start, exponent.end)

    def atom(self) -> Term:
        kind, text, start, end = self.next()
        if kind == "number":
            return Term((int if text.isdecimal() else float)(text), (), start, end)
        if kind == "name" and text == "sqrt":
            self.expect("(")
            inside = self.sum(0)
            return Term("sqrt", (inside,), start, self.expect(")"))
        if kind == "name":
            return Term(text, (), start, end)
        if text == "(":
            inside = self.sum(0)
            return Term(inside.head, inside.parts, start, self.expect(")"))
        raise ExpressionError("expected a number or a name here", start, max(end, start + 1))

    def next(self) -> tuple[str, str, int, int]:
        token = self.tokens[self.at]
        self.at = min(self.at + 1, len(self.tokens) - 1)
        return token

    def expect(self, text: str) -> int:
        found = self.next()
        if found[1] != text:
            wanted = f"'{text}'" if text else "an operator"
            raise ExpressionError(f"expected {wanted} here", found[2], max(found[3], found[2] + 1))
        return found[3]
