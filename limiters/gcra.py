"""GCRA, the generic cell rate algorithm (ITU-T I.371, ATM Forum TM 4.0): an even pace, exactly.

Per user one number, the theoretical arrival time TAT: the instant of the next token, were all
tokens evenly spaced. A take may come before it by at most the burst; each take moves it on by
1/rate, counted from now if it lies in the past, so an idle user saves up the burst and no more:

    allow iff TAT - now <= burst, then TAT = max(TAT, now) + 1/rate

At 10/s with a burst of 100 ms, four streams and steps of 30 ms:

    now in ms     0          30   60   90   120      150  180  210      240  270  300
    TAT - now     0 100 200  170  140  110  80  180  150  120  90  190  160  130  100  200
    granted       2          -    -    -    1        -    -    1        -    -    1

TAT is kept in whole ns, rounded up. Instants and the burst are whole ns too, so rounding up never
changes an answer. How much it added is remembered and paid back, so no fraction is ever lost;
where 1/rate is a whole number of ns (10, 20, 100 tokens a second) there is nothing to remember.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .checks import check_int
from .interface import DEFAULT_BURST_NS
from .quota import QuotaLimiter
from .rate import RateLike
from .scale import Scale


class Gcra(QuotaLimiter):
    """The default: one int a user, no queue, no timer."""

    __slots__ = ("_interval_ns", "_rounding", "_tat")

    def __init__(
        self,
        *,
        default_rate: RateLike | None,
        rates: Mapping[str, RateLike] | None = None,
        burst_ns: int = DEFAULT_BURST_NS,
    ) -> None:
        self._tat: dict[str, int] = {}  # in ns, rounded up; no entry: a full quota
        self._rounding: dict[str, int] = {}  # by how many units it was; no entry: by none
        super().__init__(default_rate=default_rate, rates=rates, burst_ns=burst_ns)

    def try_take(self, user: str, now_ns: int) -> bool:
        try:
            tat = self._tat[user]
        except (KeyError, TypeError):
            return self._take_unseen(user, now_ns)
        if tat <= now_ns:
            tat = now_ns
        elif tat > now_ns + self._burst_ns:
            return False
        self._tat[user] = tat + (self._interval_ns or self._interval_of(user, tat > now_ns))
        return True

    def try_take_many(self, user: str, count: int, now_ns: int) -> int:
        # An engine asks this once a user and step: in whole ns, where 1/rate allows it.
        plain = type(user) is str and type(count) is int and type(now_ns) is int and count > 0
        tat = self._tat.get(user) if plain else None
        scale = self._own.get(user, self._shared) if plain else None
        if tat is None or scale is None:
            return super().try_take_many(user, count, now_ns)
        _, _, _, interval_ns, rounding, _ = scale
        if rounding:
            return super().try_take_many(user, count, now_ns)
        if tat < now_ns:
            tat = now_ns
        taken = min(count, (now_ns + self._burst_ns - tat) // interval_ns + 1)
        if taken <= 0:
            return 0
        self._tat[user] = tat + taken * interval_ns
        return taken

    def try_take_all(self, users: list[str], now_ns: int) -> bool:
        # An engine asks this for a whole batch: the rule and no more, if all have one interval.
        interval_ns, tats = self._interval_ns, self._tat
        if not (interval_ns and type(users) is list and type(now_ns) is int):
            return super().try_take_all(users, now_ns)
        latest_ns = now_ns + self._burst_ns
        for taken, user in enumerate(users):  # noqa: B007 - used when the loop is left early
            try:
                tat = tats[user]
            except (KeyError, TypeError):
                break
            if tat <= now_ns:
                tat = now_ns
            elif tat > latest_ns:
                break
            tats[user] = tat + interval_ns
        else:
            return True
        rest = False
        try:
            rest = super().try_take_all(users[taken:], now_ns)
        finally:
            if not rest:
                for user in users[:taken]:
                    self.refund(user, now_ns)
        return rest

    def _interval_of(self, user: str, in_debt: bool) -> int:
        """1/rate in whole ns, one less each time that the roundings add up to a ns.

        A user not in debt starts anew from a whole ns.
        """
        scale = self._own.get(user, self._shared)
        assert scale is not None  # an unlimited user never has state
        per_ns, _, _, interval_ns, rounding, _ = scale
        if rounding:
            if in_debt:
                rounding += self._rounding.get(user, 0)
            if rounding >= per_ns:
                rounding -= per_ns
                interval_ns -= 1
            self._rounding[user] = rounding
        return interval_ns

    def ready_at_ns(self, user: str, now_ns: int) -> int:
        try:
            return max(now_ns, self._tat[user] - self._burst_ns)
        except (KeyError, TypeError):
            return super().ready_at_ns(user, now_ns)

    def cleanup_idle_users(self, now_ns: int) -> int:
        check_int("now_ns", now_ns)
        since_ns = self._forget_since_ns(now_ns)
        if not self._new_are_full(since_ns):
            return super().cleanup_idle_users(now_ns)
        idle = [user for user, tat in self._tat.items() if tat <= since_ns]
        for user in idle:
            self._forget(user)
        if idle:
            self._forgot(since_ns, now_ns)
        return len(idle)

    def __len__(self) -> int:
        return len(self._tat)

    # TAT as a level: a quota is full when TAT is now, and lacks (TAT - now) * rate tokens.

    def _level(self, user: str, scale: Scale, now_ns: int) -> int | None:
        tat = self._tat.get(user)
        if tat is None:
            return None
        return scale.capacity - (tat - now_ns) * scale.per_ns + self._rounding.get(user, 0)

    def _store(self, user: str, level: int, scale: Scale, now_ns: int) -> None:
        tat_units = now_ns * scale.per_ns + scale.capacity - level
        self._tat[user] = tat = -(-tat_units // scale.per_ns)
        if rounding := tat * scale.per_ns - tat_units:
            self._rounding[user] = rounding
        else:
            self._rounding.pop(user, None)

    def _forget(self, user: str) -> None:
        self._tat.pop(user, None)
        self._rounding.pop(user, None)

    def _users(self) -> Iterable[str]:
        return self._tat

    def _rescale(self, user: str | None) -> None:
        super()._rescale(user)
        scale = self._shared
        # Everybody's 1/rate where it is the same whole number of ns, else 0.
        alike = scale is not None and not self._own and not scale.rounding
        self._interval_ns = scale.interval_ns if alike and scale else 0
