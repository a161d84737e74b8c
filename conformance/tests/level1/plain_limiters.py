"""A correct limiter, plain and slow, made to be broken: each fault overrides one small method.

A level of tokens as a Fraction and the instant at which it was true; no entry is a full quota.
"""

import math
import sys
from fractions import Fraction

from limiters import Limiter
from limiters.checks import check_int, check_user

NS_PER_S = 10**9


class Plain(Limiter):
    def __init__(self, *, default_rate, rates=None, burst_ns=100_000_000):
        super().__init__(default_rate=default_rate, rates=rates, burst_ns=burst_ns)
        self.levels = {}
        self.newcomer = None  # (level, at): what a raise left to users without state
        self.before = self.settings()

    # What a fault may get wrong.

    def per_ns(self, user):
        rate = self.rate_of(user)
        return None if rate is None else rate / NS_PER_S

    def full(self, per_ns):
        return 1 + self.burst_ns * per_ns

    def passes(self, level, per_ns):
        return level >= 1

    def cost(self, per_ns):
        return Fraction(1)

    def elapsed(self, now, at):
        return now - at

    def store(self, user, level, now):
        self.levels[user] = level, now

    def denied(self, user, level, now):
        pass

    def given_back(self, level, per_ns):
        return min(level + 1, self.full(per_ns))

    def idle(self, user, now):
        per_ns = self.per_ns(user)
        level, at = self.levels[user]
        level = min(level + (now - at) * per_ns, self.full(per_ns))
        return level == self.unseen(user, per_ns, now)

    def changed(self, level, old_per_ns, new_per_ns):
        """A level after a change: in whole units of the new rate, rounded down."""
        return Fraction(math.floor(level * new_per_ns.denominator), new_per_ns.denominator)

    def ready_in(self, level, per_ns):
        return max(0, math.ceil((1 - level) / per_ns))

    # The verbs.

    def try_take(self, user, now_ns):
        self.check(user, now_ns)
        per_ns = self.per_ns(user)
        if per_ns is None:
            return True
        level = self.level(user, per_ns, now_ns)
        if not self.passes(level, per_ns):
            self.denied(user, level, now_ns)
            return False
        self.store(user, level - self.cost(per_ns), now_ns)
        return True

    def refund(self, user, now_ns):
        self.check(user, now_ns)
        per_ns = self.per_ns(user)
        if per_ns is not None and user in self.levels:
            level = self.given_back(self.level(user, per_ns, now_ns), per_ns)
            self.settle(user, level, per_ns, now_ns)

    def available(self, user, now_ns):
        self.check(user, now_ns)
        per_ns = self.per_ns(user)
        return sys.maxsize if per_ns is None else self.count(self.level(user, per_ns, now_ns))

    def count(self, level):
        return max(0, math.floor(level))

    def ready_at_ns(self, user, now_ns):
        self.check(user, now_ns)
        per_ns = self.per_ns(user)
        if per_ns is None:
            return now_ns
        return now_ns + self.ready_in(self.level(user, per_ns, now_ns), per_ns)

    def cleanup_idle_users(self, now_ns):
        check_int("now_ns", now_ns)
        idle = [user for user in self.levels if self.idle(user, now_ns)]
        for user in idle:
            del self.levels[user]
        return len(idle)

    def __len__(self):
        return len(self.levels)

    def check(self, user, now_ns):
        check_user(user)
        check_int("now_ns", now_ns)

    # Levels.

    def unseen(self, user, per_ns, now):
        full = self.full(per_ns)
        if self.newcomer is None or user in self._rates:
            return full
        level, at = self.newcomer
        return min(full, level + (now - at) * per_ns)

    def level(self, user, per_ns, now):
        if user not in self.levels:
            return self.unseen(user, per_ns, now)
        level, at = self.levels[user]
        return min(level + self.elapsed(now, at) * per_ns, self.full(per_ns))

    def settle(self, user, level, per_ns, now):
        if level == self.unseen(user, per_ns, now):
            self.levels.pop(user, None)
        else:
            self.store(user, level, now)

    # Changes.

    def settings(self):
        return self.default_rate, dict(self._rates), self.burst_ns

    def _retune(self, user, now_ns):
        after, before = self.settings(), self.before
        touched = [user] if user is not None else list({*self.levels, *self._rates})
        self.restore(before)
        old = {each: per_ns for each in touched if (per_ns := self.per_ns(each)) is not None}
        levels = {each: self.level(each, per_ns, now_ns) for each, per_ns in old.items()}
        shared = self.per_ns("a newcomer")
        newcomer = None if shared is None else self.unseen("a newcomer", shared, now_ns)
        self.restore(after)
        if user is None:
            self.newcomer = self.newcomer_after(newcomer, shared, now_ns)
        for each in touched:
            per_ns = self.per_ns(each)
            if per_ns is None:
                self.levels.pop(each, None)
            elif each in old:
                level = min(self.changed(levels[each], old[each], per_ns), self.full(per_ns))
                self.settle(each, level, per_ns, now_ns)
        self.before = after

    def newcomer_after(self, level, old_per_ns, now):
        per_ns = self.per_ns("a newcomer")
        if level is None or per_ns is None:
            return None
        level = self.changed(level, old_per_ns, per_ns)
        return None if level >= self.full(per_ns) else (level, now)

    def restore(self, settings):
        self._default_rate, rates, self._burst_ns = settings
        self._rates = dict(rates)


class PlainWindow(Limiter):
    """A correct rolling window: every take is kept, and counted."""

    def __init__(self, *, default_rate, rates=None, burst_ns=100_000_000, window_ns=None):
        super().__init__(default_rate=default_rate, rates=rates, burst_ns=burst_ns)
        self.window_ns = window_ns
        self.takes = {}
        self.before = self.settings()

    def span(self, user):
        """(k, k/r in ns, how long a take is kept), or None for an unlimited user."""
        rate = self.rate_of(user)
        if rate is None:
            return None
        window = self.burst_ns if self.window_ns is None else self.window_ns
        k = max(1, math.floor(window * rate / NS_PER_S))
        span = math.ceil(k * NS_PER_S / rate)  # instants are whole, so this decides alike
        return k, span, max(span, window, self.burst_ns)

    def counts(self, at, now, span):
        return at > now - span

    def denied(self, user, now):
        pass

    def try_take(self, user, now_ns):
        if self.available(user, now_ns) < 1:
            self.denied(user, now_ns)
            return False
        if self.span(user) is not None:
            self.takes.setdefault(user, []).append(now_ns)
            self.cut(user, now_ns)
        return True

    def cut(self, user, now):
        k, _, kept = self.span(user)
        if len(self.takes[user]) > 2 * k:
            takes = self.takes[user]
            self.takes[user] = [at for at in takes[:-k] if at > now - kept] + takes[-k:]

    def refund(self, user, now_ns):
        check_user(user)
        check_int("now_ns", now_ns)
        if self.span(user) is not None and (takes := self.takes.get(user)):
            takes.remove(max([at for at in takes if at <= now_ns] or takes))
            self.drop(user, now_ns)

    def available(self, user, now_ns):
        check_user(user)
        check_int("now_ns", now_ns)
        settings = self.span(user)
        if settings is None:
            return sys.maxsize
        k, span, _ = settings
        return max(0, k - sum(self.counts(at, now_ns, span) for at in self.takes.get(user, ())))

    def ready_at_ns(self, user, now_ns):
        if self.available(user, now_ns):
            return now_ns
        k, span, _ = self.span(user)
        return math.ceil(sorted(self.takes[user])[-k] + span)

    def cleanup_idle_users(self, now_ns):
        check_int("now_ns", now_ns)
        before = len(self.takes)
        for user in list(self.takes):
            self.drop(user, now_ns)
        return before - len(self.takes)

    def drop(self, user, now, old=False):
        kept = [at for at in self.takes[user] if at > now - self.span(user)[2]]
        if old:
            self.takes[user] = kept
        if not kept:
            del self.takes[user]

    def __len__(self):
        return len(self.takes)

    def settings(self):
        return self.default_rate, dict(self._rates), self.burst_ns

    def _retune(self, user, now_ns):
        after = self.settings()
        self._default_rate, self._rates, self._burst_ns = self.before
        for each in [user] if user is not None else list(self.takes):
            if each in self.takes:
                self.drop(each, now_ns, old=True)
        self._default_rate, rates, self._burst_ns = after
        self._rates = dict(rates)
        self.takes = {u: takes for u, takes in self.takes.items() if self.span(u) is not None}
        self.before = self.settings()
