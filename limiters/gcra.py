"""GCRA, the generic cell rate algorithm (ITU-T I.371, ATM Forum TM 4.0): an even pace, exactly.

Per user one number, the theoretical arrival time TAT: the instant of the next token, were all
tokens evenly spaced. A take may come before it by at most the burst; each take moves it on by
1/rate, counted from now if it lies in the past, so an idle user saves up the burst and no more:

    allow iff TAT - now <= burst, then TAT = max(TAT, now) + 1/rate

TAT is kept in whole ns, rounded up. Instants and the burst are whole ns too, so rounding up never
changes an answer. What it adds is remembered and taken off later, so no fraction is ever lost;
where 1/rate is a whole number of ns (10, 20, 100 tokens a second) there is nothing to remember.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .interface import DEFAULT_BURST_NS
from .quota import QuotaLimiter
from .rate import RateLike
from .scale import Scale


class Gcra(QuotaLimiter):
    """The default: one int a user, no queue, no timer."""

    __slots__ = ("_rounding", "_tat", "_whole_interval")

    def __init__(
        self,
        *,
        default_rate: RateLike | None,
        rates: Mapping[str, RateLike] | None = None,
        burst_ns: int = DEFAULT_BURST_NS,
    ) -> None:
        self._tat: dict[str, int] = {}  # in ns, rounded up; no entry: a full quota
        self._rounding: dict[str, int] = {}  # by how many units it was; no entry: none
        super().__init__(default_rate=default_rate, rates=rates, burst_ns=burst_ns)

    def try_take(self, user: str, now_ns: int) -> bool:
        try:
            tat = self._tat[user]
        except (KeyError, TypeError):
            return self._take_unseen(user, now_ns)
        if tat > now_ns:
            if tat - now_ns > self._burst_ns:
                return False
        else:
            tat = now_ns
        if interval := self._whole_interval:
            self._tat[user] = tat + interval
        else:
            self._advance(user, tat, now_ns)
        return True

    def _advance(self, user: str, tat: int, now_ns: int) -> None:
        """Move TAT on by 1/rate where users differ or 1/rate is no whole number of ns."""
        scale = self._own.get(user, self._shared)
        assert scale is not None  # an unlimited user never has state
        rounding = self._rounding.get(user, 0) if tat > now_ns else 0
        self._set(user, tat * scale.per_ns - rounding + scale.per_token, scale)

    def _set(self, user: str, units: int, scale: Scale) -> None:
        tat = -(-units // scale.per_ns)
        self._tat[user] = tat
        if rounding := tat * scale.per_ns - units:
            self._rounding[user] = rounding
        elif self._rounding:
            self._rounding.pop(user, None)

    def ready_at_ns(self, user: str, now_ns: int) -> int:
        tat = self._tat.get(user)
        if tat is None:
            return super().ready_at_ns(user, now_ns)
        return max(now_ns, tat - self._burst_ns)

    def __len__(self) -> int:
        return len(self._tat)

    # TAT as a level: a quota is full when TAT is now, and short by (TAT - now) * rate tokens.

    def _level(self, user: str, scale: Scale, now_ns: int) -> int | None:
        tat = self._tat.get(user)
        if tat is None:
            return None
        return scale.capacity - (tat - now_ns) * scale.per_ns + self._rounding.get(user, 0)

    def _store(self, user: str, level: int, scale: Scale, now_ns: int) -> None:
        self._set(user, now_ns * scale.per_ns + scale.capacity - level, scale)

    def _forget(self, user: str) -> None:
        self._tat.pop(user, None)
        self._rounding.pop(user, None)

    def _users(self) -> Iterable[str]:
        return self._tat

    def _rescale(self, user: str | None) -> None:
        super()._rescale(user)
        shared = self._shared
        whole = shared is not None and shared.per_ns == 1 and not self._own
        self._whole_interval = shared.per_token if whole and shared else 0
