"""A rate, in tokens per second: any positive rational number, read exactly."""

from __future__ import annotations

import math
import re
from fractions import Fraction

from .checks import shown

RateLike = int | float | str | Fraction

MIN_RATE = Fraction(1, 10**9)
"""The slowest rate, in tokens per second: one token in some 32 years."""

MAX_RATE = Fraction(10**12)
"""The fastest rate, in tokens per second: a thousand tokens in a nanosecond."""

_MAX_DIGITS = 100  # of a text, of a numerator, of a denominator: keeps all arithmetic short
_TOO_LONG = 10**_MAX_DIGITS

_DECIMAL = re.compile(r"([0-9]+)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+))?")
_POINT_FIRST = re.compile(r"()\.([0-9]+)(?:[eE]([+-]?[0-9]+))?")
_RATIO = re.compile(r"([0-9]+)/([0-9]+)")


def parse_rate(value: RateLike) -> Fraction:
    """Read a rate in tokens per second, exactly.

    Takes an int, a Fraction, a float (by its shortest decimal: 0.1 is 1/10) or a text: a decimal
    such as "20", "0.5" or "1e3", or a ratio such as "1/3600". Texts hold ASCII digits, no sign
    before the number, no spaces and no underscores.

    Raises TypeError for another type (bool too) and ValueError for a text that is no number and
    for a rate outside `MIN_RATE` to `MAX_RATE` (so for NaN, infinity, zero and below).
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str | Fraction):
        raise TypeError(f"rate must be a number of tokens per second, got {shown(value)}")
    if isinstance(value, str):
        rate = _read(value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"rate must be finite, got {shown(value)}")
        rate = Fraction(float.__repr__(value))
    else:
        rate = Fraction(value)
    if rate <= 0:
        raise ValueError(f"rate must be above zero, got {shown(value)}")
    if not MIN_RATE <= rate <= MAX_RATE:
        raise _out_of_range(value)
    if rate.denominator >= _TOO_LONG:
        raise ValueError(
            f"rate must be a ratio of at most {_MAX_DIGITS} digits each, got {shown(value)}"
        )
    return rate


def _read(text: str) -> Fraction:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"rate must have at most {_MAX_DIGITS} characters, got {shown(text)}")
    if ratio := _RATIO.fullmatch(text):
        above, below = map(int, ratio.groups())
        if below == 0:
            raise ValueError(f"rate must not divide by zero, got {shown(text)}")
        return Fraction(above, below)
    decimal = _DECIMAL.fullmatch(text) or _POINT_FIRST.fullmatch(text)
    if decimal is None:
        raise ValueError(
            f'rate must be a positive number such as "20", "0.5" or "1/3", got {shown(text)}'
        )
    whole, after_point, exponent = (part or "" for part in decimal.groups())
    digits, power = int(whole + after_point), int(exponent or "0") - len(after_point)
    # Before any power of ten: "1e30000000" would take a machine's memory and minutes.
    if digits and abs(power) > 2 * _MAX_DIGITS:
        raise _out_of_range(text)
    return Fraction(digits) * Fraction(10) ** power if digits else Fraction(0)


def _out_of_range(value: object) -> ValueError:
    return ValueError(f"rate must lie between 1e-9 and 1e12 tokens per second, got {shown(value)}")
