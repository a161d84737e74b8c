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

    # No slots: two bases with slots of their own do not mix.
    _start_ns: int | None = None
    """Where the latest step began, but no earlier than a step may; None before the first."""
    _end_ns: int | None = None
    """Where it ended."""
    _forgotten_ns: int | None = None
    """Up to here users were forgotten as full, so no full quota may reach back before it."""

    def end_step(self, start_ns: int, now_ns: int) -> None:
        check_int("start_ns", start_ns)
        check_int("now_ns", now_ns)
        if start_ns > now_ns:
            raise ValueError(f"start_ns must not be after now_ns, got {start_ns} after {now_ns}")
        start_ns = max(start_ns, now_ns - MAX_STEP_NS)
        if self._start_ns is None or start_ns > self._start_ns:
            self._start_ns = start_ns
        self._end_ns = now_ns

    def _full_since_ns(self, burst_ns: int, now_ns: int) -> int:
        """Where the TAT of a quota lies that is full at this instant."""
        if now_ns != self._end_ns or self._start_ns is None:
            return now_ns
        since_ns = self._start_ns + burst_ns
        if self._forgotten_ns is not None:
            since_ns = max(since_ns, self._forgotten_ns)
        return min(now_ns, since_ns)

    def _full(self, scale: Scale, now_ns: int) -> int:
        # The scale's own burst: while a change is made, the old one still counts.
        since_ns = self._full_since_ns(scale.burst_ns, now_ns)
        return scale.capacity + (now_ns - since_ns) * scale.per_ns

    def _forget_since_ns(self, now_ns: int) -> int:
        if self._start_ns is None:
            return now_ns
        return min(now_ns, max(self._start_ns, now_ns - MAX_STEP_NS) + self._burst_ns)

    def _forgot(self, since_ns: int, now_ns: int) -> None:
        # At the end of a step the order of steps keeps the promise above; at any other instant it
        # has to be kept against a step told later that began before it.
        if now_ns != self._end_ns and (self._forgotten_ns is None or since_ns > self._forgotten_ns):
            self._forgotten_ns = since_ns

    def _retune(self, user: str | None, now_ns: int) -> None:
        super()._retune(user, now_ns)
        self._forgot(now_ns, now_ns)  # levels were capped by what was full just now


class AutoBurstGcra(_AutoBurst, Gcra):
    """GCRA whose full quota outlasts the step that has just ended."""

    # Gcra's own shortcuts know no steps.
    try_take_many = QuotaLimiter.try_take_many
    try_take_all = QuotaLimiter.try_take_all

    def try_take(self, user: str, now_ns: int) -> bool:
        try:
            tat = self._tat[user]
        except (KeyError, TypeError):
            return self._take_unseen(user, now_ns)
        if tat > now_ns + self._burst_ns:
            return False
        since_ns = self._full_since_ns(self._burst_ns, now_ns)
        in_debt = tat > since_ns
        self._tat[user] = (tat if in_debt else since_ns) + self._interval_of(user, in_debt)
        return True


class AutoBurstTokenBucket(_AutoBurst, TokenBucket):
    """The token bucket whose capacity follows the step that has just ended."""
