"""The users of the scenarios and their limits.

A scenario names its users where it is written. All of them are known once pytest has collected,
which is before the first server starts, so one server serves every scenario, and no scenario
inherits another's debt.
"""

from __future__ import annotations

import json
import sys
from fractions import Fraction

FREE = "free"  # the one user without a limit that scenarios compare with
PROBE = "probe"  # unlimited too; marks the end of a scenario in the record
ANONYMOUS = "__anonymous__"

_RATES: dict[str, Fraction] = {}
_MODULES: dict[str, str] = {}  # where a user was named


def limited(name: str, rate: int | str) -> str:
    """Name a user with a limit in tokens per second; returns the name.

    Raises ValueError if another scenario has the name: the two would share one quota.
    """
    if name in _RATES:
        raise ValueError(f"user {name!r} is taken by another scenario")
    _RATES[name] = Fraction(rate)
    _MODULES[name] = sys._getframe(1).f_globals["__name__"]
    return name


def rate_of(name: str) -> Fraction:
    """The user's limit in tokens per second."""
    return _RATES[name]


def flag() -> list[str]:
    """The server's flag for all limits named so far."""
    rates = {
        user: int(rate) if rate.denominator == 1 else float(rate)
        for user, rate in sorted(_RATES.items())
    }
    return ["--user-output-tokens-per-second", json.dumps(rates, separators=(",", ":"))]


def rates_of(module: str) -> dict[str, Fraction]:
    """The limits that a module of scenarios named, in tokens per second."""
    return {user: rate for user, rate in _RATES.items() if _MODULES[user] == module}
