"""The definitions that a backend may claim to follow, in Fractions and with nothing optimised.

Instants and the burst are in ns, rates in tokens per second, levels in tokens. They know the verbs
of a limiter, and answer as it must; bad input is not their business.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from conformance.contract import Contract

NS_PER_S = 1_000_000_000
LONGEST_STEP_NS = 10 * NS_PER_S


def definition(
    contract: Contract, default: Any, rates: Mapping[str, Any], burst_ns: int
) -> GcraDefinition | WindowDefinition | None:
    """What the contract says that its backend decides like, or None."""
    if contract.decides_like == "gcra":
        return GcraDefinition(default, rates, burst_ns, auto=contract.follows_steps)
    if contract.decides_like == "rolling_window":
        return WindowDefinition(default, rates, burst_ns, contract.options.get("window_ns"))
    return None


class _Definition:
    """Rates and the burst, and how a change of them is told."""

    def __init__(self, default: Any, rates: Mapping[str, Any], burst_ns: int) -> None:
        self.default = None if default is None else Fraction(default)
        self.rates = {user: Fraction(rate) for user, rate in rates.items()}
        self.burst_ns = burst_ns

    def per_ns(self, user: str) -> Fraction | None:
        """The user's rate in tokens per ns; None: unlimited."""
        rate = self.rates.get(user, self.default)
        return None if rate is None else rate / NS_PER_S

    def try_take(self, user: str, now: int) -> bool:
        raise NotImplementedError

    def try_take_many(self, user: str, count: int, now: int) -> int:
        return sum(self.try_take(user, now) for _ in range(count))

    def end_step(self, start: int, now: int) -> None:
        """Only GCRA with a quota that follows steps listens."""

    def set_rate(self, user: str, rate: Any, now: int) -> None:
        self._change(user, now, rates={**self.rates, user: Fraction(rate)})

    def unset_rate(self, user: str, now: int) -> None:
        if user in self.rates:
            rest = {each: rate for each, rate in self.rates.items() if each != user}
            self._change(user, now, rates=rest)

    def set_default_rate(self, rate: Any, now: int) -> None:
        self._change(None, now, default=None if rate is None else Fraction(rate))

    def set_burst(self, burst_ns: int, now: int) -> None:
        self._change(None, now, burst_ns=burst_ns)

    def _change(self, user: str | None, now: int, **settings: Any) -> None:
        raise NotImplementedError


class _Level(NamedTuple):
    tokens: Fraction
    at: int


class GcraDefinition(_Definition):
    """GCRA and the token bucket: a level of tokens that fills evenly up to a full quota."""

    def __init__(
        self, default: Any, rates: Mapping[str, Any], burst_ns: int, *, auto: bool = False
    ) -> None:
        super().__init__(default, rates, burst_ns)
        self.levels: dict[str, _Level] = {}
        self.newcomer: _Level | None = None
        """After a raise: what users of the default rate have who have no state."""
        self.auto = auto
        self.start: int | None = None
        self.end: int | None = None

    def full(self, per_ns: Fraction, now: int) -> Fraction:
        """A full quota; it follows the step that ended at this very instant."""
        spare = self.burst_ns
        if self.start is not None and now == self.end:
            spare = max(spare, now - self.start)
        return 1 + spare * per_ns

    def unseen(self, user: str, per_ns: Fraction, now: int) -> Fraction:
        """The level of this user if it has no state."""
        full = self.full(per_ns, now)
        if self.newcomer is None or user in self.rates:
            return full
        return min(full, self.newcomer.tokens + (now - self.newcomer.at) * per_ns)

    def level(self, user: str, per_ns: Fraction, now: int) -> Fraction:
        stored = self.levels.get(user)
        if stored is None:
            return self.unseen(user, per_ns, now)
        return min(stored.tokens + (now - stored.at) * per_ns, self.full(per_ns, now))

    def put(self, user: str, tokens: Fraction, per_ns: Fraction, now: int) -> None:
        """Give the user this level, or no state if that says the same."""
        tokens = min(tokens, self.full(per_ns, now))
        if tokens == self.unseen(user, per_ns, now):
            self.levels.pop(user, None)
        else:
            self.levels[user] = _Level(tokens, now)

    def try_take(self, user: str, now: int) -> bool:
        per_ns = self.per_ns(user)
        if per_ns is None:
            return True
        level = self.level(user, per_ns, now)
        if level < 1:
            return False
        self.levels[user] = _Level(level - 1, now)
        return True

    def refund(self, user: str, now: int) -> None:
        per_ns = self.per_ns(user)
        if per_ns is not None and user in self.levels:
            self.put(user, self.level(user, per_ns, now) + 1, per_ns, now)

    def available(self, user: str, now: int) -> int:
        per_ns = self.per_ns(user)
        if per_ns is None:
            return sys.maxsize
        return max(0, math.floor(self.level(user, per_ns, now)))

    def ready_at_ns(self, user: str, now: int) -> int:
        per_ns = self.per_ns(user)
        if per_ns is None:
            return now
        return now + max(0, math.ceil((1 - self.level(user, per_ns, now)) / per_ns))

    def cleanup_idle_users(self, now: int) -> int:
        since = now
        if self.auto and self.start is not None:
            # Whoever may still be told apart by a longer quota at the end of a step must stay.
            since = min(now, max(self.start, now - LONGEST_STEP_NS) + self.burst_ns)
        idle = [user for user in self.levels if self._like_new(user, since)]
        for user in idle:
            del self.levels[user]
        return len(idle)

    def _like_new(self, user: str, since: int) -> bool:
        per_ns = self.per_ns(user)
        assert per_ns is not None
        full = 1 + self.burst_ns * per_ns
        stored, new = self.levels[user], full
        if self.newcomer is not None and user not in self.rates:
            new = min(full, self.newcomer.tokens + (since - self.newcomer.at) * per_ns)
        return min(full, stored.tokens + (since - stored.at) * per_ns) == new

    def end_step(self, start: int, now: int) -> None:
        if self.auto:
            start = max(start, now - LONGEST_STEP_NS)
            self.start = start if self.start is None else max(start, self.start)
            self.end = now

    def __len__(self) -> int:
        return len(self.levels)

    def _change(self, user: str | None, now: int, **settings: Any) -> None:
        """The level in tokens survives, rounded down to whole units, up to the new full quota."""
        touched = [user] if user is not None else sorted({*self.levels, *self.rates})
        old = {each: per_ns for each in touched if (per_ns := self.per_ns(each)) is not None}
        levels = {each: self.level(each, per_ns, now) for each, per_ns in old.items()}
        shared = None if self.default is None else self.default / NS_PER_S
        newcomer = None if shared is None else self.unseen("", shared, now)
        vars(self).update(settings)
        if user is None:
            self.newcomer = None
            if newcomer is not None and self.default is not None:
                per_ns = self.default / NS_PER_S
                newcomer = _whole_units(newcomer, per_ns)
                if newcomer < self.full(per_ns, now):
                    self.newcomer = _Level(newcomer, now)
        for each in touched:
            per_ns_now = self.per_ns(each)
            if per_ns_now is None:
                self.levels.pop(each, None)
            elif each in levels:
                self.put(each, _whole_units(levels[each], per_ns_now), per_ns_now, now)


def _whole_units(tokens: Fraction, per_ns: Fraction) -> Fraction:
    """Rounded down to 1/q token, for a rate of p/q tokens per ns in lowest terms."""
    return Fraction(math.floor(tokens * per_ns.denominator), per_ns.denominator)


class WindowDefinition(_Definition):
    """The rolling window: every take that can still matter, and a count of them."""

    def __init__(
        self, default: Any, rates: Mapping[str, Any], burst_ns: int, window_ns: int | None
    ) -> None:
        super().__init__(default, rates, burst_ns)
        self.configured_ns = window_ns
        self.takes: dict[str, list[int]] = {}

    def window_ns(self) -> int:
        return self.burst_ns if self.configured_ns is None else self.configured_ns

    def k(self, per_ns: Fraction) -> int:
        return max(1, math.floor(self.window_ns() * per_ns))

    def keep_ns(self, per_ns: Fraction) -> Fraction:
        """How long a take is kept."""
        return max(Fraction(self.window_ns()), Fraction(self.burst_ns), self.k(per_ns) / per_ns)

    def try_take(self, user: str, now: int) -> bool:
        if self.available(user, now) < 1:
            return False
        if self.per_ns(user) is not None:
            self.takes.setdefault(user, []).append(now)
        return True

    def refund(self, user: str, now: int) -> None:
        if self.per_ns(user) is not None and (takes := self.takes.get(user)):
            takes.remove(max([at for at in takes if at <= now] or takes))
            self._drop(user, now)

    def available(self, user: str, now: int) -> int:
        per_ns = self.per_ns(user)
        if per_ns is None:
            return sys.maxsize
        since = now - self.k(per_ns) / per_ns
        return max(0, self.k(per_ns) - sum(at > since for at in self.takes.get(user, ())))

    def ready_at_ns(self, user: str, now: int) -> int:
        per_ns = self.per_ns(user)
        if per_ns is None or self.available(user, now):
            return now
        k = self.k(per_ns)
        return math.ceil(sorted(self.takes[user])[-k] + k / per_ns)

    def cleanup_idle_users(self, now: int) -> int:
        before = len(self.takes)
        for user in list(self.takes):
            self._drop(user, now)
        return before - len(self.takes)

    def __len__(self) -> int:
        return len(self.takes)

    def _drop(self, user: str, now: int, *, old: bool = False) -> None:
        """Forget a user all of whose takes are too old, or with `old` each take that is."""
        per_ns = self.per_ns(user)
        assert per_ns is not None
        kept = [at for at in self.takes[user] if at > now - self.keep_ns(per_ns)]
        if old:
            self.takes[user] = kept
        if not kept:
            del self.takes[user]

    def _change(self, user: str | None, now: int, **settings: Any) -> None:
        """The log survives, but for what no longer mattered before the change."""
        for each in [user] if user is not None else list(self.takes):
            if each in self.takes:
                self._drop(each, now, old=True)
        vars(self).update(settings)
        self.takes = {u: takes for u, takes in self.takes.items() if self.per_ns(u) is not None}
