"""The rolling window: a strict log, never more than k takes in any stretch of k/rate.

    k = max(1, floor(window * rate)), allow iff fewer than k takes lie in (now - k/rate, now]

In any closed window of W seconds it grants at most k * (floor(W * rate / k) + 1). With a window of
1 s it is the plain "never more than N in any second".

It does not make up for lateness: where takes come at steps of s seconds, k tokens cost
ceil(k / (rate * s)) steps. That is at least rate / (1 + s * rate / k); at steps of 30 ms and the
default window of 100 ms, 0.83 of 10, 20 or 100 tokens a second. No strict log can do better. Nor is
its pace even: k tokens may come at once, and then none for k/rate. Where that matters, take GCRA.

A change of rate or burst keeps the log and changes k and the window.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from .checks import check_int, check_user
from .interface import DEFAULT_BURST_NS, Limiter
from .rate import RateLike
from .scale import NS_PER_S


class _Window(NamedTuple):
    """What one rate allows."""

    takes: int
    """k: so many takes ..."""
    span_ns: int
    """... in so long: k/rate, rounded up, which is exact since instants are whole ns."""
    keep_ns: int
    """How long a take can matter, now or after a change of the settings."""

    @classmethod
    def of(cls, rate: Fraction, window_ns: int, burst_ns: int) -> _Window:
        takes = max(1, window_ns * rate.numerator // (NS_PER_S * rate.denominator))
        span_ns = -(-takes * NS_PER_S * rate.denominator // rate.numerator)
        return cls(takes, span_ns, max(window_ns, burst_ns, span_ns))


class _Log:
    """The takes of one user in order of time, those of one instant counted together.

    `_totals[i]` is how many takes there were up to and at `_instants[i]`, since the log began.
    """

    __slots__ = ("_dropped", "_instants", "_totals")

    def __init__(self) -> None:
        self._instants: list[int] = []
        self._totals: list[int] = []
        self._dropped = 0

    def __len__(self) -> int:
        return self._totals[-1] - self._dropped if self._totals else 0

    def since(self, instant_ns: int) -> int:
        """How many takes are later than the instant."""
        return len(self) - self._up_to(bisect_right(self._instants, instant_ns))

    def newest(self, nth: int) -> int:
        """The instant of the nth newest take."""
        return self._instants[bisect_right(self._totals, self._totals[-1] - nth)]

    def add(self, instant_ns: int, takes: int) -> None:
        at = bisect_right(self._instants, instant_ns)
        if at == 0 or self._instants[at - 1] != instant_ns:
            self._instants.insert(at, instant_ns)
            self._totals.insert(at, self._dropped + self._up_to(at))
            at += 1
        self._shift(at - 1, takes)

    def remove(self, instant_ns: int) -> None:
        """Take back the newest take up to the instant, or the newest of all if there is none."""
        at = (bisect_right(self._instants, instant_ns) or len(self._instants)) - 1
        self._shift(at, -1)
        if self._up_to(at + 1) == self._up_to(at):
            del self._instants[at], self._totals[at]

    def drop(self, instant_ns: int, keep: int = 0) -> None:
        """Drop the takes up to the instant, but none of the newest `keep`."""
        old = bisect_right(self._instants, instant_ns)
        if keep:
            old = min(old, bisect_right(self._totals, self._totals[-1] - keep))
        if old:
            self._dropped = self._totals[old - 1]
            del self._instants[:old], self._totals[:old]

    def _up_to(self, runs: int) -> int:
        return self._totals[runs - 1] - self._dropped if runs else 0

    def _shift(self, first: int, takes: int) -> None:
        for run in range(first, len(self._totals)):  # one run, unless time stepped back
            self._totals[run] += takes


class RollingWindow(Limiter):
    """At most k takes in any window; option `window_ns`, by default the burst."""

    __slots__ = ("_logs", "_own", "_shared", "_window_ns")

    def __init__(
        self,
        *,
        default_rate: RateLike | None,
        rates: Mapping[str, RateLike] | None = None,
        burst_ns: int = DEFAULT_BURST_NS,
        window_ns: int | None = None,
    ) -> None:
        """As every limiter; `window_ns` is the window in ns, at least 1, or None for the burst."""
        super().__init__(default_rate=default_rate, rates=rates, burst_ns=burst_ns)
        if window_ns is not None:
            check_int("window_ns", window_ns, least=1)
        self._window_ns = window_ns
        self._logs: dict[str, _Log] = {}  # no entry: no take that still matters
        self._own: dict[str, _Window] = {}
        self._shared: _Window | None = None
        self._resize(None)

    def try_take(self, user: str, now_ns: int) -> bool:
        return self.try_take_many(user, 1, now_ns) == 1

    def try_take_many(self, user: str, count: int, now_ns: int) -> int:
        check_int("count", count, least=0)
        window = self._window_of(user, now_ns)
        if window is None:
            return count
        log = self._logs.get(user)
        taken = min(count, window.takes - self._used(log, window, now_ns))
        if taken <= 0:
            return 0
        if log is None:
            log = self._logs[user] = _Log()
        log.add(now_ns, taken)
        # The k newest stay, however old: they settle every question even if time steps back.
        if len(log) > 2 * window.takes:
            log.drop(now_ns - window.keep_ns, keep=window.takes)
        return taken

    def refund(self, user: str, now_ns: int) -> None:
        window = self._window_of(user, now_ns)
        log = self._logs.get(user)
        if window is not None and log is not None:
            log.remove(now_ns)
            if not log.since(now_ns - window.keep_ns):
                del self._logs[user]

    def available(self, user: str, now_ns: int) -> int:
        window = self._window_of(user, now_ns)
        if window is None:
            return sys.maxsize
        return max(0, window.takes - self._used(self._logs.get(user), window, now_ns))

    def ready_at_ns(self, user: str, now_ns: int) -> int:
        window = self._window_of(user, now_ns)
        log = self._logs.get(user)
        if window is None or log is None or len(log) < window.takes:
            return now_ns
        return max(now_ns, log.newest(window.takes) + window.span_ns)

    def cleanup_idle_users(self, now_ns: int) -> int:
        check_int("now_ns", now_ns)
        idle = []
        for user, log in self._logs.items():
            window = self._own.get(user, self._shared)
            if window is None or log.newest(1) <= now_ns - window.keep_ns:
                idle.append(user)
        for user in idle:
            del self._logs[user]
        return len(idle)

    def __len__(self) -> int:
        return len(self._logs)

    def _window_of(self, user: str, now_ns: int) -> _Window | None:
        if type(user) is not str or not user or type(now_ns) is not int:  # cheaper than two calls
            check_user(user)
            check_int("now_ns", now_ns)
        return self._own.get(user, self._shared)

    @staticmethod
    def _used(log: _Log | None, window: _Window, now_ns: int) -> int:
        return 0 if log is None else log.since(now_ns - window.span_ns)

    def _retune(self, user: str | None, now_ns: int) -> None:
        """Keep the logs, less what no longer mattered before the change."""
        for each in [user] if user is not None else list(self._logs):
            window = self._own.get(each, self._shared)
            log = self._logs.get(each)
            if window is not None and log is not None:
                log.drop(now_ns - window.keep_ns)
                if not log:
                    del self._logs[each]
        self._resize(user)
        if self._shared is None:
            self._logs = {each: log for each, log in self._logs.items() if each in self._own}

    def _resize(self, user: str | None) -> None:
        if user is None:
            self._own = {name: self._window(rate) for name, rate in self._rates.items()}
            self._shared = None if self._default_rate is None else self._window(self._default_rate)
        elif user in self._rates:
            self._own[user] = self._window(self._rates[user])
        else:
            del self._own[user]  # only a rate that was there is taken away

    def _window(self, rate: Fraction) -> _Window:
        window_ns = self._burst_ns if self._window_ns is None else self._window_ns
        return _Window.of(rate, window_ns, self._burst_ns)
