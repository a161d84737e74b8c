from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from limiters import parse_rate
from limiters.rate import MAX_RATE, MIN_RATE


@pytest.mark.parametrize(
    ("value", "rate"),
    [
        (20, Fraction(20)),
        (0.1, Fraction(1, 10)),  # not the binary fraction next to it
        (1e-9, MIN_RATE),
        (1e12, MAX_RATE),
        (10**12, MAX_RATE),
        (Fraction(10, 13), Fraction(10, 13)),
        ("20", Fraction(20)),
        ("007", Fraction(7)),
        ("0.5", Fraction(1, 2)),
        (".5", Fraction(1, 2)),
        ("5.", Fraction(5)),
        ("1e3", Fraction(1000)),
        ("1E+3", Fraction(1000)),
        ("2.5e-1", Fraction(1, 4)),
        ("1/3600", Fraction(1, 3600)),
        ("10/4", Fraction(5, 2)),
        ("1000000000", Fraction(10**9)),
        ("0.33333333333333333333", Fraction(33333333333333333333, 10**20)),
    ],
)
def test_reads_exactly(value, rate):
    assert parse_rate(value) == rate
    assert type(parse_rate(value)) is Fraction


BAD_VALUES = [
    0, -1, 0.0, -0.5, float("nan"), float("inf"), -float("inf"), 5e-324, 1e300,
    10**12 + 1, 10**5000, -(10**5000),
    Fraction(0), Fraction(-1, 2), Fraction(1, 10**10), Fraction(10**200 + 1, 10**199),
    "", " ", "0", "0.0", "0e999", "-1", "+1", "--1", "nan", "NaN", "inf", "Infinity",
    "1e400", "1e-400", "1e30000000", "1e-30000000", "1e999999999999999999",
    "9" * 101, "1" * 5000, "0." + "0" * 5000 + "1",
    "1 0", " 1", "1 ", "1\n", "1_000", "1\u00a0", "1\x00", "\u0665", "\uff15", "\u00b2", "\u00bd",
    "1/ 3", "1/0", "0/5", "1/2/3", "1/2e1", "-1/2", "1/-2", "/2", "2/",
    "1.2.3", ".", "e5", "1e", "1e+", "1e1.5", "0x10", "1,5", "true", "twenty", "5/s",
]  # fmt: skip


@pytest.mark.parametrize("value", BAD_VALUES, ids=lambda value: ascii(type(value).__name__))
def test_refuses_a_value_in_one_line(value):
    with pytest.raises(ValueError, match=r"^rate must ") as refusal:
        parse_rate(value)
    message = str(refusal.value)
    assert "\n" not in message
    assert len(message) < 160
    assert ", got " in message


@pytest.mark.parametrize("value", [True, False, None, b"1", [1], {}, 1j, object()])
def test_refuses_a_type_in_one_line(value):
    with pytest.raises(TypeError, match=r"^rate must be a number .*, got [^\n]*$"):
        parse_rate(value)


@settings(deadline=None)
@given(st.floats(min_value=1e-9, max_value=1e12))
def test_a_float_is_its_shortest_decimal(value):
    assert parse_rate(value) == parse_rate(repr(value))
    assert float(parse_rate(value)) == value


@settings(deadline=None)
@given(st.integers(1, 10**30), st.integers(1, 10**30))
def test_a_ratio_survives_its_text(above, below):
    value = Fraction(above, below)
    assume(MIN_RATE <= value <= MAX_RATE)
    assert parse_rate(f"{value.numerator}/{value.denominator}") == parse_rate(value) == value
