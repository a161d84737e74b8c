"""What GCRA and the token bucket share: a level of tokens that fills at an even pace.

A backend keeps one user's level in a shape of its own. Here is all that does not depend on that
shape: whose rate is whose, who is full, and what a change of rate leaves.

A level is counted in the units of the user's `Scale`. It grows by `per_ns` a ns, whatever its
sign, and a full quota caps it: when it is asked for, never when it is stored.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from .checks import check_int, check_user
from .interface import DEFAULT_BURST_NS, Limiter
from .rate import RateLike
from .scale import Scale


class _Level(NamedTuple):
    units: int
    at_ns: int


class QuotaLimiter(Limiter):
    """A limiter whose users each have a level of tokens."""

    __slots__ = ("_newcomer", "_own", "_shared")

    def __init__(
        self,
        *,
        default_rate: RateLike | None,
        rates: Mapping[str, RateLike] | None = None,
        burst_ns: int = DEFAULT_BURST_NS,
    ) -> None:
        super().__init__(default_rate=default_rate, rates=rates, burst_ns=burst_ns)
        self._own: dict[str, Scale] = {}
        self._shared: Scale | None = None
        # The level of default-rate users without state, if a raise left it below full.
        self._newcomer: _Level | None = None
        self._rescale(None)

    # The shape of the state: four small verbs of the backend.

    @abstractmethod
    def _users(self) -> Iterable[str]:
        """The users with state."""

    @abstractmethod
    def _level(self, user: str, scale: Scale, now_ns: int) -> int | None:
        """The user's level at this instant, not capped; None for a user without state."""

    @abstractmethod
    def _store(self, user: str, level: int, scale: Scale, now_ns: int) -> None:
        """Give the user this level at this instant."""

    @abstractmethod
    def _forget(self, user: str) -> None:
        """Drop the user's state, if any."""

    # Where `auto_burst` differs.

    def _full(self, scale: Scale, now_ns: int) -> int:
        """A full quota at this instant."""
        return scale.capacity

    def _forget_since_ns(self, now_ns: int) -> int:
        """Who has been full since this instant can't be told from a new user any more."""
        return now_ns

    def _forgot(self, since_ns: int, now_ns: int) -> None:
        """Somebody was forgotten at `now_ns` who has been full since `since_ns`."""

    # The verbs that need not be fast.

    def try_take_many(self, user: str, count: int, now_ns: int) -> int:
        check_int("count", count, least=0)
        scale = self._scale_of(user, now_ns)
        if scale is None:
            return count
        level = self._capped(user, scale, now_ns)
        taken = min(count, max(0, level // scale.per_token))
        if taken:
            self._store(user, level - taken * scale.per_token, scale, now_ns)
        return taken

    def refund(self, user: str, now_ns: int) -> None:
        scale = self._scale_of(user, now_ns)
        if scale is not None and self._level(user, scale, now_ns) is not None:
            level = self._capped(user, scale, now_ns) + scale.per_token
            self._settle(user, level, scale, now_ns)

    def available(self, user: str, now_ns: int) -> int:
        scale = self._scale_of(user, now_ns)
        if scale is None:
            return sys.maxsize
        return max(0, self._capped(user, scale, now_ns) // scale.per_token)

    def ready_at_ns(self, user: str, now_ns: int) -> int:
        scale = self._scale_of(user, now_ns)
        if scale is None:
            return now_ns
        lacking = scale.per_token - self._capped(user, scale, now_ns)
        return now_ns + max(0, -(-lacking // scale.per_ns))

    def cleanup_idle_users(self, now_ns: int) -> int:
        check_int("now_ns", now_ns)
        since_ns = self._forget_since_ns(now_ns)
        idle = [user for user in self._users() if self._is_like_new(user, since_ns)]
        for user in idle:
            self._forget(user)
        if idle:
            self._forgot(since_ns, now_ns)
        return len(idle)

    def _take_unseen(self, user: str, now_ns: int) -> bool:
        """`try_take` for a user without state: the only place where a take creates some."""
        scale = self._scale_of(user, now_ns)
        if scale is None:
            return True
        level = self._unseen(user, scale, now_ns)
        if level < scale.per_token:
            return False
        self._store(user, level - scale.per_token, scale, now_ns)
        return True

    # Levels.

    def _scale_of(self, user: str, now_ns: int) -> Scale | None:
        if type(user) is not str or not user or type(now_ns) is not int:  # cheaper than two calls
            check_user(user)
            check_int("now_ns", now_ns)
        return self._own.get(user, self._shared)

    def _unseen(self, user: str, scale: Scale, now_ns: int) -> int:
        """The level of this user had it no state."""
        full = self._full(scale, now_ns)
        if self._newcomer is None or user in self._own:
            return full
        level, at_ns = self._newcomer
        return min(full, level + (now_ns - at_ns) * scale.per_ns)

    def _capped(self, user: str, scale: Scale, now_ns: int) -> int:
        level = self._level(user, scale, now_ns)
        if level is None:
            return self._unseen(user, scale, now_ns)
        return min(level, self._full(scale, now_ns))

    def _settle(self, user: str, level: int, scale: Scale, now_ns: int) -> None:
        """Store a level up to full, or nothing for one that a user without state has too."""
        level = min(level, self._full(scale, now_ns))
        if level == self._unseen(user, scale, now_ns):
            self._forget(user)
            self._forgot(now_ns, now_ns)
        else:
            self._store(user, level, scale, now_ns)

    def _is_like_new(self, user: str, since_ns: int) -> bool:
        scale = self._own.get(user, self._shared)
        assert scale is not None  # an unlimited user never has state
        level = self._level(user, scale, since_ns)
        assert level is not None
        if self._newcomer is None or user in self._own:
            return level >= scale.capacity
        new = self._newcomer.units + (since_ns - self._newcomer.at_ns) * scale.per_ns
        return min(level, scale.capacity) == min(new, scale.capacity)

    def _new_are_full(self, since_ns: int) -> bool:
        """Whether every user without state has been full since this instant."""
        if self._newcomer is None or self._shared is None:
            return True
        level, at_ns = self._newcomer
        return level + (since_ns - at_ns) * self._shared.per_ns >= self._shared.capacity

    # A change of the settings.

    def _retune(self, user: str | None, now_ns: int) -> None:
        """Rescale, and keep every level in tokens: a raise gives nobody more than it had.

        Keeping the debt in ns instead would make a change from 1000/s to 1/s wait for 100 s;
        keeping the instant at which it is paid would make 1/s to 1000/s wait for a second.
        """
        changed = {user} if user is not None else {*self._users(), *self._own}
        before: dict[str, tuple[int, Scale]] = {}
        for each in changed:
            scale = self._own.get(each, self._shared)
            if scale is not None:
                before[each] = self._capped(each, scale, now_ns), scale
        unseen = self._shared and (self._unseen("", self._shared, now_ns), self._shared)
        self._rescale(user)
        if user is None:
            self._newcomer = self._newcomer_after(unseen, now_ns)
        for each in changed:
            new = self._own.get(each, self._shared)
            if new is None:
                self._forget(each)
            elif each in before:
                level, old = before[each]
                self._settle(each, new.carry(level, old), new, now_ns)

    def _newcomer_after(self, unseen: tuple[int, Scale] | None, now_ns: int) -> _Level | None:
        if unseen is None or self._shared is None:
            return None
        level = self._shared.carry(*unseen)
        return None if level >= self._full(self._shared, now_ns) else _Level(level, now_ns)

    def _rescale(self, user: str | None) -> None:
        if user is None:
            self._own = {name: self._scale(rate) for name, rate in self._rates.items()}
            default = self._default_rate
            self._shared = None if default is None else self._scale(default)
        elif user in self._rates:
            self._own[user] = self._scale(self._rates[user])
        else:
            del self._own[user]  # only a rate that was there is taken away

    def _scale(self, rate: Fraction) -> Scale:
        return Scale.of(rate, self._burst_ns)
