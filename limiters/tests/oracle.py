"""Slow and plain: the rules of the limiters on Fractions and full histories, as definitions say.

Nothing here shares arithmetic with the package: no scaled integers, no level, no trimmed log.
"""

from __future__ import annotations

import math
from fractions import Fraction

S = 10**9
MAX_STEP = 10 * S
UNLIMITED = "unlimited"


class Settings:
    def __init__(self, default, rates, burst):
        self.default, self.rates, self.burst = default, dict(rates), burst

    def rate(self, user):
        """In tokens per ns; None: unlimited."""
        rate = self.rates.get(user, self.default)
        return None if rate is None else Fraction(rate) / S


class GcraOracle(Settings):
    """TAT as a Fraction of ns. A missing TAT is that of a full quota, or of a newcomer."""

    def __init__(self, default, rates=(), burst=S // 10, auto=False):
        super().__init__(default, rates, burst)
        self.tat = {}
        self.newcomer = -math.inf
        self.auto, self.start, self.end = auto, None, None

    def full(self, now):
        """The TAT of a full quota."""
        if self.auto and self.end == now:
            return min(now, self.start + self.burst)
        return now

    def unseen(self, user, now):
        floor = self.full(now)
        return floor if user in self.rates else max(floor, self.newcomer)

    def ahead(self, user, now):
        return max(self.tat.get(user, self.unseen(user, now)), self.full(now))

    def try_take(self, user, now):
        rate = self.rate(user)
        if rate is None:
            return True
        tat = self.ahead(user, now)
        if tat - now > self.burst:
            return False
        self.tat[user] = tat + 1 / rate
        return True

    def try_take_many(self, user, count, now):
        return sum(self.try_take(user, now) for _ in range(count))

    def refund(self, user, now):
        if user in self.tat:
            self.put(user, self.ahead(user, now) - 1 / self.rate(user), now)

    def put(self, user, tat, now):
        tat = max(tat, self.full(now))
        if tat == self.unseen(user, now):
            self.tat.pop(user, None)
        else:
            self.tat[user] = tat

    def available(self, user, now):
        rate = self.rate(user)
        if rate is None:
            return UNLIMITED
        taken, tat = 0, self.ahead(user, now)
        while tat - now <= self.burst:
            taken, tat = taken + 1, tat + 1 / rate
        return taken

    def ready_at_ns(self, user, now):
        if self.rate(user) is None:
            return now
        return max(now, math.ceil(self.ahead(user, now) - self.burst))

    def cleanup_idle_users(self, now):
        since = now
        if self.auto and self.start is not None:
            since = min(now, max(self.start, now - MAX_STEP) + self.burst)
        for user, tat in list(self.tat.items()):
            new = since if user in self.rates else max(since, self.newcomer)
            if max(tat, since) == new:
                del self.tat[user]

    def end_step(self, start, now):
        if self.auto:
            self.start, self.end = max(start, now - MAX_STEP), now

    def users(self):
        return len(self.tat)

    def change(self, now, only=None, **new):
        before = {}
        for user in [only] if only else {*self.tat, *self.rates}:
            before[user] = self.rate(user), self.ahead(user, now) - now, self.burst
        newcomer = Settings.rate(self, None), self.unseen(None, now) - now, self.burst
        vars(self).update(new)
        if "rates" not in new:
            rate = self.rate(None)
            self.newcomer = -math.inf
            if rate is not None:
                tat = self.after(*newcomer, rate, now)
                self.newcomer = tat if tat > self.full(now) else -math.inf
        for user, old in before.items():
            rate = self.rate(user)
            if rate is None:
                self.tat.pop(user, None)
            elif old[0] is not None:
                self.put(user, self.after(*old, rate, now), now)

    def after(self, old_rate, ahead, old_burst, rate, now):
        """The level in tokens survives, up to full; rounded up to what the new rate resolves."""
        if old_rate is None:
            return -math.inf
        tat = now + self.burst + (ahead - old_burst) * old_rate / rate
        tat = Fraction(math.ceil(tat * rate.numerator), rate.numerator)
        return max(tat, self.full(now))


class WindowOracle(Settings):
    """Every take ever, and the definition."""

    def __init__(self, default, rates=(), burst=S // 10, window=None):
        super().__init__(default, rates, burst)
        self.configured = window
        self.takes = {}

    def window(self):
        return self.burst if self.configured is None else self.configured

    def k(self, user):
        return max(1, math.floor(self.window() * self.rate(user)))

    def keep(self, user):
        return max(self.window(), self.burst, 1 / self.rate(user))

    def inside(self, user, now):
        span = self.k(user) / self.rate(user)
        return [at for at in self.takes.get(user, ()) if at > now - span]

    def try_take(self, user, now):
        if self.rate(user) is not None:
            if len(self.inside(user, now)) >= self.k(user):
                return False
            self.takes.setdefault(user, []).append(now)
        return True

    def try_take_many(self, user, count, now):
        return sum(self.try_take(user, now) for _ in range(count))

    def refund(self, user, now):
        if self.rate(user) is None or user not in self.takes:
            return
        takes = self.takes[user]
        takes.remove(max([at for at in takes if at <= now] or takes))
        self.forget_if_idle(user, now)

    def forget_if_idle(self, user, now):
        if not [at for at in self.takes[user] if at > now - self.keep(user)]:
            del self.takes[user]

    def available(self, user, now):
        if self.rate(user) is None:
            return UNLIMITED
        return max(0, self.k(user) - len(self.inside(user, now)))

    def ready_at_ns(self, user, now):
        if self.rate(user) is None or self.available(user, now):
            return now
        nth = sorted(self.takes[user])[-self.k(user)]
        return math.ceil(nth + self.k(user) / self.rate(user))

    def cleanup_idle_users(self, now):
        for user in list(self.takes):
            self.forget_if_idle(user, now)

    def end_step(self, start, now):
        pass

    def users(self):
        return len(self.takes)

    def change(self, now, only=None, **new):
        touched = set(self.takes) & ({only} if only else set(self.takes))
        for user in touched:
            keep = self.keep(user)
            self.takes[user] = [at for at in self.takes[user] if at > now - keep]
        vars(self).update(new)
        for user in touched:
            if not self.takes[user] or self.rate(user) is None:
                del self.takes[user]
