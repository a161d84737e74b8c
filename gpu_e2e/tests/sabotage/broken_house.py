"""Faults that the soak has to see: a user too fast, an answer cut short, memory never freed.

Imported first by every process of a server that `OUTPUT_RATE_E2E_IMPORT` tells to.
"""

from __future__ import annotations

import sys
from fractions import Fraction
from typing import Any

from limiters.gcra import Gcra
from sched_adapter.config import OutputRateConfig

TWICE = "soak-5-"  # run at twice their limit
CUT = "soak-100-"  # get a token less than they asked for
LEAK_BYTES = 65_536  # at every refund


def break_house() -> None:
    """Put the faults in."""
    make, refund = OutputRateConfig.make_limiter, Gcra.refund
    kept: list[bytearray] = []

    def made(self: OutputRateConfig) -> Any:
        _cut_answers()
        limiter = make(self)
        for user, rate in self.rates.items():
            if user.startswith(TWICE):
                limiter.set_rate(user, 2 * Fraction(rate), 0)
        return limiter

    def refunded(self: Gcra, user: str, now_ns: int) -> None:
        kept.append(bytearray(b"x" * LEAK_BYTES))
        refund(self, user, now_ns)

    OutputRateConfig.make_limiter = made  # type: ignore[method-assign]
    Gcra.refund = refunded  # type: ignore[method-assign]


def _cut_answers() -> None:
    # Only the engine's process has it by now, and only there it matters.
    membership = sys.modules.get("sched_adapter.membership")
    if membership is None:
        return
    join = membership.Membership._join

    def cut(self: Any, request: Any) -> None:
        extra = request.sampling_params.extra_args or {}
        if str(extra.get("output_rate_user")).startswith(CUT) and request.max_tokens > 1:
            request.max_tokens -= 1
        join(self, request)

    membership.Membership._join = cut


break_house()
