"""Arithmetic on sizes agrees with Python's; anything else is an error."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xformc.compiler.spec.expressions import ExpressionError, parse_expression

SIZES = {"d_model": 512, "heads": 8, "dropout": 0.1}
ATOMS = st.one_of(st.integers(0, 99).map(str), st.sampled_from(list(SIZES)), st.sampled_from(["0.5", "1e-3", ".25"]))
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" + ", "-", " * ", "/"]), inner).map("".join),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: f"-{text}"),
        inner.map(lambda text: f"sqrt({text})"),
    ),
    max_leaves=6,
)


@given(EXPRESSIONS)
def test_expression_has_the_value_that_python_gives(text: str) -> None:
    names = {**SIZES, "sqrt": math.sqrt, "__builtins__": {}}
    try:
        expected = eval(text, names)
    except (ZeroDivisionError, ValueError):
        with pytest.raises(ExpressionError):
            parse_expression(text).value(lambda name, part: SIZES[name])
        return
    assert parse_expression(text).value(lambda name, part: SIZES[name]) == pytest.approx(expected, rel=1e-9)


@given(st.text(max_size=30))
def test_any_text_is_an_expression_or_an_error_within_it(text: str) -> None:
    try:
        parse_expression(text)
    except ExpressionError as error:
        assert 0 <= error.start < error.end <= len(text) + 1


@pytest.mark.parametrize(
    ("text", "value"),
    [("2^3^2", 512), ("-2^2", -4), ("2^-1", 0.5), ("7 // 2 * 2", 6), ("-7 % 3", 2), ("2 * 3^2 % 5", 3), ("4^0.5", 2.0)],
)
def test_powers_bind_before_signs_and_products(text: str, value: float) -> None:
    assert parse_expression(text).value(lambda name, part: SIZES[name]) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("9^9^9^9", "larger than 1e+15"),
        ("99^99^99", "larger than 1e+15"),
        ("(-2)^0.5", "a power that is no real number"),
        ("0^-1", "a power that is no real number"),
        ("1 % 0", "division by zero"),
        ("2 ** 3", "write ^ for a power"),
    ],
)
def test_what_has_no_value_says_why(text: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=re.escape(message)):
        parse_expression(text).value(lambda name, part: SIZES[name])


def test_whole_quotients_are_integers() -> None:
    value = parse_expression("d_model / heads").value(lambda name, part: SIZES[name])
    assert value == 64 and isinstance(value, int)


def test_names_are_found_in_order() -> None:
    assert parse_expression("sqrt(b) * (a - 2) / b").names() == ("b", "a", "b")
