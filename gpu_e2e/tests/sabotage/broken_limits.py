"""Limits that are broken on purpose, for one user each; everybody else's are right.

Imported first by every process of a server that `OUTPUT_RATE_E2E_IMPORT` tells to. One server is
then enough to see each fault caught, and the scenarios of other users say that nothing else broke.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from limiters.gcra import Gcra
from sched_adapter.config import OutputRateConfig
from sched_adapter.turns import Line

TWICE = "several-a"  # runs at twice its limit
NO_REFUND = "long-prompts"  # pays for what it could not use
NO_ROTATION = "__anonymous__"  # its streams keep their order, whoever was served
FREE_OF_CHARGE = "stopping"  # is never refused


def break_limits() -> None:
    """Put the faults in."""
    make, refund, serve = OutputRateConfig.make_limiter, Gcra.refund, Line.serve

    def made(self: OutputRateConfig) -> Any:
        limiter = make(self)
        limiter.set_rate(TWICE, 2 * Fraction(self.rates[TWICE]), 0)
        limiter.set_rate(FREE_OF_CHARGE, 10**6, 0)
        return limiter

    def refunded(self: Gcra, user: str, now_ns: int) -> None:
        if user != NO_REFUND:
            refund(self, user, now_ns)

    def served(self: Line[Any], request: Any, step: int) -> None:
        if self.user.name == NO_ROTATION:
            self.residents[request] = step
        else:
            serve(self, request, step)

    OutputRateConfig.make_limiter = made  # type: ignore[method-assign]
    Gcra.refund, Line.serve = refunded, served  # type: ignore[method-assign]


break_limits()
