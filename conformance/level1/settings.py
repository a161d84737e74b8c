"""Rates and bursts to try: round and awkward, slow and fast."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from conformance.contract import Contract

MS = 1_000_000
S = 1_000_000_000

_MOST_AT_ONCE = 1_000


class Setting(NamedTuple):
    """A rate in tokens per second and a burst in ns."""

    rate: Fraction
    burst_ns: int

    @property
    def exact(self) -> bool:
        """Whether 1/r is whole ns, so that nothing is ever rounded."""
        return S * self.rate.denominator % self.rate.numerator == 0

    def __str__(self) -> str:
        return f"{self.rate} tok/s, burst {self.burst_ns} ns"


def _setting(rate: str, burst_ns: int = 100 * MS) -> Setting:
    return Setting(Fraction(rate), burst_ns)


SETTINGS = (
    _setting("10"),
    _setting("20"),
    _setting("100"),
    _setting("5"),
    _setting("3"),
    _setting("33"),
    _setting("1/10"),
    _setting("10/13"),
    _setting("1/3600"),
    _setting("7919/13"),
    _setting("123.456", 33 * MS),
    _setting("7.5", 100 * MS + 1),
    _setting("1000"),
    _setting("10", 0),
    _setting("3", 0),
    _setting("10", 2 * S),
    _setting("33", 1),
    _setting("1e9", 50),
    _setting("10000000000/3", 10),
)


def settings_for(contract: Contract) -> list[Setting]:
    """All of them, but for those whose full quota takes too long to use up token by token."""
    return [each for each in SETTINGS if contract.bound(0, *each) <= _MOST_AT_ONCE]


RATES = [
    Fraction(text)
    for text in ("10", "33", "1/10", "10/13", "3", "7.5", "1000", "123.456", "7919/13", "97")
] + [Fraction(1, 3600), Fraction(10**9), Fraction(10**10, 3)]

BURSTS_NS = [0, 1, 33 * MS, 100 * MS, 100 * MS + 1, 2 * S]
