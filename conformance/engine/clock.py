"""A clock that moves only when it is told to."""

from __future__ import annotations

import random
import secrets

__all__ = ["ManualClock"]


class ManualClock:
    """Nanoseconds that pass only by `advance`; call the clock to read it.

    It starts at a large random offset, because code that secretly reads the process's own
    clock, or that takes 0 for "never", looks right as long as the two clocks are near each
    other. The seed of the offset is in the repr, so a failure can be run again.

    `seed`: draws the offset; None draws a seed. `start_ns`: the offset itself, in ns.
    """

    __slots__ = ("_now_ns", "seed", "start_ns")

    def __init__(self, seed: int | None = None, start_ns: int | None = None) -> None:
        self.seed = secrets.randbits(32) if seed is None else seed
        if start_ns is None:
            # Beyond any uptime of a machine (2^52 ns is 52 days), below half of int64.
            start_ns = random.Random(self.seed).randrange(2**52, 2**61)
        self.start_ns = start_ns
        self._now_ns = start_ns

    def __call__(self) -> int:
        return self._now_ns

    @property
    def elapsed_ns(self) -> int:
        """ns since the start."""
        return self._now_ns - self.start_ns

    def advance(self, ns: int) -> int:
        """Let `ns` pass and return the new instant. ValueError if ns is negative."""
        if ns < 0:
            raise ValueError(f"advance({ns}): time does not go back here; use jump() to force it")
        self._now_ns += ns
        return self._now_ns

    def jump(self, ns: int) -> int:
        """Move by `ns`, back too: a faulty clock. Returns the new instant."""
        self._now_ns += ns
        return self._now_ns

    def __repr__(self) -> str:
        return (
            f"ManualClock(seed={self.seed}, start_ns={self.start_ns}, elapsed_ns={self.elapsed_ns})"
        )
