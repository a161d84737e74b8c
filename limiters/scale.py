"""Exact integers for any rate: the units in which a quota is counted.

A rate of p/q tokens per second fills p tokens in q * 10^9 ns. In lowest terms that is `per_ns`
units a ns and `per_token` units a token: no instant and no token ever falls between two units.
At 10/s they are 1 and 10^8, at 33/s they are 33 and 10^9.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

NS_PER_S = 1_000_000_000


class Scale(NamedTuple):
    """The units of one rate and burst."""

    per_ns: int
    """Units that the quota gains in a ns."""
    per_token: int
    """Units that one token costs."""
    capacity: int
    """Units in a full quota: one token and the burst."""
    interval_ns: int
    """1/rate in ns, rounded up."""
    rounding: int
    """By how many units it was."""
    burst_ns: int

    @classmethod
    def of(cls, rate: Fraction, burst_ns: int) -> Scale:
        fill = rate / NS_PER_S
        per_ns, per_token = fill.numerator, fill.denominator
        interval_ns = -(-per_token // per_ns)
        return cls(
            per_ns=per_ns,
            per_token=per_token,
            capacity=per_token + burst_ns * per_ns,
            interval_ns=interval_ns,
            rounding=interval_ns * per_ns - per_token,
            burst_ns=burst_ns,
        )

    def carry(self, level: int, old: Scale) -> int:
        """A level counted in `old`'s units in these: as many tokens, never one unit more."""
        return level * self.per_token // old.per_token
