"""Option `auto_burst`: a quota that outlasts steps longer than the burst.

A full quota holds 1 + burst * rate tokens. If a step of the engine lasts longer than the burst,
what a user could not take meanwhile is lost: three streams at 10/s get 8 with steps of 250 ms. Here
a full quota follows the step that has just ended, and only at the instant at which it ended:

    1 + rate * max(burst, length of that step)

In GCRA's terms the tolerance stays the burst, so no pace gets less even; what changes is how far
back an idle user's TAT may lie:

    TAT = max(TAT, min(now, start + burst)) + 1/rate

A closed window of W then holds at most (W + max(burst, s)) * rate + 1 takes, where s is the length
of the step that ended at its first take, if one did. For after that take, at t, TAT is at least
t - max(0, s - burst) + 1/rate; each further take adds 1/rate; and the last one, at u <= t + W,
found TAT <= u + burst.

A wait or a pause is no step: at any instant at which none ended, the plain rule holds. A clock that
jumps makes one step of at most `MAX_STEP_NS`.

Who may be forgotten: a missing entry means full at whatever step will end next. So a user must
have been full since before any later `start + burst`: since min(now, start + burst) of the latest
step, for steps are told in their order, or since more than `MAX_STEP_NS` ago.
"""

from __future__ import annotations

from .checks import check_int
from .gcra import Gcra
from .quota import QuotaLimiter
from .scale import Scale
from .token_bucket import TokenBucket

MAX_STEP_NS = 10_000_000_000
"""The longest step that counts in full, in ns: 10 s."""


class _AutoBurst(QuotaLimiter):
    """How long ago a quota that is full now may have become so."""

    # The latest step, which no later one may precede; None before the first. No slots: two bases
    # with slots of their own do not mix.
    _start_ns: int | None = None
    _end_ns: int | None = None

    def end_step(self, start_ns: int, now_ns: int) -> None:
        check_int("start_ns", start_ns)
        check_int("now_ns", now_ns)
        if start_ns > now_ns:
            raise ValueError(f"start_ns must not be after now_ns, got {start_ns} after {now_ns}")
        self._end_ns = now_ns
        self._begin_no_earlier(max(start_ns, now_ns - MAX_STEP_NS))

    def _begin_no_earlier(self, start_ns: int) -> None:
        if self._start_ns is None or start_ns > self._start_ns:
            self._start_ns = start_ns

    def _full_since_ns(self, now_ns: int) -> int:
        """Where the TAT of a quota lies that is full at this instant."""
        if self._start_ns is None or now_ns != self._end_ns:
            return now_ns
        return min(now_ns, self._start_ns + self._burst_ns)

    def _full(self, scale: Scale, now_ns: int) -> int:
        if self._start_ns is None or now_ns != self._end_ns:
            return scale.capacity
        return max(scale.capacity, scale.per_token + (now_ns - self._start_ns) * scale.per_ns)

    def _forget_since_ns(self, now_ns: int) -> int:
        if self._start_ns is None:
            return now_ns
        return min(now_ns, max(self._start_ns, now_ns - MAX_STEP_NS) + self._burst_ns)

    def _forgot(self, now_ns: int) -> None:
        # Keeps the promise above even if a step is told that began long before this instant.
        self._begin_no_earlier(self._full_since_ns(now_ns) - self._burst_ns)


class AutoBurstGcra(_AutoBurst, Gcra):
    """GCRA whose full quota outlasts the step that has just ended."""

    def try_take(self, user: str, now_ns: int) -> bool:
        try:
            tat = self._tat[user]
        except (KeyError, TypeError):
            return self._take_unseen(user, now_ns)
        if tat > now_ns + self._burst_ns:
            return False
        since_ns = self._full_since_ns(now_ns)
        in_debt = tat > since_ns
        self._tat[user] = (tat if in_debt else since_ns) + self._interval_of(user, in_debt)
        return True


class AutoBurstTokenBucket(_AutoBurst, TokenBucket):
    """The token bucket whose capacity follows the step that has just ended."""
