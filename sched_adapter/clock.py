"""The instants that the limiter sees: one a step, never decreasing."""

from __future__ import annotations

from collections.abc import Callable


class StepClock:
    """A clock read once a step, in monotonic ns.

    A limiter needs time that never decreases.  Where the source steps back all
    the same, time goes on from the last instant seen, at the source's pace: the
    users lose the gap, and nobody is frozen until the source has caught up.
    A jump forward mints nothing, since a quota never exceeds its burst.
    """

    __slots__ = ("_last", "_offset", "source")

    def __init__(self, source: Callable[[], int]) -> None:
        self.source = source
        self._offset = 0
        self._last: int | None = None

    def read(self) -> int:
        """The instant of a new step, in ns."""
        now = self.source() + self._offset
        if self._last is not None and now < self._last:
            self._offset += self._last - now
            now = self._last
        self._last = now
        return now

    def peek(self) -> int:
        """The instant now, in ns, without starting a step."""
        now = self.source() + self._offset
        return now if self._last is None else max(now, self._last)
