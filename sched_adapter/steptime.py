"""How long a batch step takes, and a word in the log where that costs quota.

A user saves up no more than the burst between two steps, so steps longer than
the burst lose quota: at rate r, burst B and steps of s a user gets at most
(1 + B·r)/s tokens per second.  ``--output-rate-burst-ms auto`` makes up for it.
"""

from __future__ import annotations

import logging
from fractions import Fraction

logger = logging.getLogger("vllm.output_rate")

#: So many steps in a row make slowness a habit that is worth a word.
_IN_A_ROW = 10

#: After a rest longer than this, in ns, no step has *just* ended.
_REST_NS = 100_000_000


class StepTime:
    """Measures steps that ran a batch; a wait, a pause or an idle engine is none."""

    __slots__ = ("_began_ns", "_burst_ns", "_ended_ns", "_long", "_silent", "length_ns")

    def __init__(self, burst_ns: int, silent: bool) -> None:
        self._burst_ns = burst_ns
        self._silent = silent
        self._began_ns: int | None = None
        self._ended_ns: int | None = None
        self._long = 0
        #: The latest step, in ns; 0 before the first.
        self.length_ns = 0

    def end(self, now_ns: int) -> None:
        """The output of a batch has come back."""
        self._ended_ns = now_ns

    def begin(self, now_ns: int) -> int | None:
        """The next step begins; the length in ns of the one that has just ended, if one did.

        None after a rest: who comes to an engine that was idle or paused finds no more
        quota saved up than the burst, however long the step before was.

        The time from the last ``begin`` to the output that came since: under
        async scheduling, too, the time between two batches.
        """
        began_ns, ended_ns = self._began_ns, self._ended_ns
        self._began_ns, self._ended_ns = now_ns, None
        if began_ns is None or ended_ns is None:
            return None
        self.length_ns = ended_ns - began_ns
        self._long = self._long + 1 if self.length_ns > self._burst_ns else 0
        if self._long == _IN_A_ROW and not self._silent:
            self._silent = True
            logger.warning(self.advice())
        return self.length_ns if now_ns - ended_ns <= _REST_NS else None

    def advice(self) -> str:
        """What steps of this length do to a rate, in one line."""
        step_ms, burst_ms = self.length_ns / 1e6, self._burst_ns / 1e6
        reached = ", ".join(f"{float(self.reachable(rate)):.1f} of {rate}" for rate in (10, 100))
        return (
            f"Engine steps take {step_ms:.0f} ms, longer than the output rate's burst of "
            f"{burst_ms:.0f} ms: users reach at most {reached} tokens/s. "
            "Set --output-rate-burst-ms to auto, or to more than a step."
        )

    def reachable(self, rate: Fraction | int) -> Fraction:
        """The most of ``rate`` (tokens/s) that a user gets with steps as long as the latest."""
        if not self.length_ns:
            return Fraction(rate)
        per_step = 1 + Fraction(self._burst_ns, 10**9) * rate
        return min(Fraction(rate), per_step / Fraction(self.length_ns, 10**9))
