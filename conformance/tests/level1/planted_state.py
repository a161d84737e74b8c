"""Faults in state, settings and declarations. Every limiter in this file is *wrong*."""

from fractions import Fraction

from plain_limiters import NS_PER_S, Plain
from planted import Fault, fault, promise

from conformance.contracts import (
    GCRA,
    ROLLING_WINDOW_1S,
    even_bound,
    even_reach,
    even_wait_ns,
)
from limiters.auto_burst import AutoBurstGcra

# Clean-up and memory.


@fault("clean-up forgets debts", "L-CLEANUP-1", "L-CASES-1")
class ForgetsDebts(Plain):
    def idle(self, user, now):
        return True


@fault("clean-up goes by the last take", "L-CLEANUP-1", "L-CASES-1")
class ForgetsByAge(Plain):
    def idle(self, user, now):
        return now - self.levels[user][1] > NS_PER_S


@fault("clean-up forgets who could take a token", "L-CLEANUP-1")
class ForgetsNearlyFull(Plain):
    def idle(self, user, now):
        return self.available(user, now) >= 1


@fault("clean-up forgets nobody", "L-IDLE-1", "L-STATE-1")
class ForgetsNobody(Plain):
    def idle(self, user, now):
        return False


@fault("clean-up miscounts", "L-IDLE-1")
class Miscounts(Plain):
    def cleanup_idle_users(self, now_ns):
        super().cleanup_idle_users(now_ns)
        return len(self)


@fault("a log that is never cut", "L-STATE-1")
class EndlessLog(Plain):
    def store(self, user, level, now):
        super().store(user, level, now)
        self.__dict__.setdefault("log", []).append((user, now))


@fault("strangers are remembered", "L-ASK-1", "L-STATE-1")
class RemembersStrangers(Plain):
    def available(self, user, now_ns):
        per_ns = self.per_ns(user)
        if per_ns is not None and user not in self.levels:
            self.store(user, self.level(user, per_ns, now_ns), now_ns)
        return super().available(user, now_ns)


@fault("a question rounds the level", "L-ASK-1")
class QuestionRounds(Plain):
    def ready_at_ns(self, user, now_ns):
        ready = super().ready_at_ns(user, now_ns)
        per_ns = self.per_ns(user)
        if user in self.levels and per_ns is not None:
            level = self.level(user, per_ns, now_ns)
            self.store(user, Fraction(int(level * 1000), 1000), now_ns)
        return ready


# Rates and their changes.


@fault("a change of rate in retrospect", "L-CHANGE-1", "L-MODEL-1")
class Retroactive(Plain):
    """The time since the last take counts at the new rate."""

    def _retune(self, user, now_ns):
        self.before = self.settings()


@fault("a change keeps the arrival time", "S2-ADAPT-1", "L-CHANGE-1")
class KeepsArrivalTime(Plain):
    def changed(self, level, old_per_ns, new_per_ns):
        ahead = (1 - level) / old_per_ns  # ns until the next token
        return 1 - ahead * new_per_ns


@fault("a change keeps the debt in seconds", "S2-ADAPT-1")
class KeepsDebtInSeconds(Plain):
    def changed(self, level, old_per_ns, new_per_ns):
        debt = self.full(old_per_ns) - level
        return self.full(new_per_ns) - debt * max(Fraction(1), old_per_ns / new_per_ns)


@fault("a change renews the quota", "S2-CHANGE-1", "L-CHANGE-1")
class ChangeRenews(Plain):
    def changed(self, level, old_per_ns, new_per_ns):
        return self.full(new_per_ns)


@fault("a change scales the level", "L-CHANGE-1")
class ScalesLevel(Plain):
    def changed(self, level, old_per_ns, new_per_ns):
        return level / self.full(old_per_ns) * self.full(new_per_ns)


@fault("a raise fills strangers up", "L-CHANGE-1")
class FillsStrangersUp(Plain):
    def newcomer_after(self, level, old_per_ns, now):
        return None


@fault("a change touches other users", "S4-APART-1")
class TouchesOthers(Plain):
    def set_rate(self, user, rate, now_ns):
        super().set_rate(user, rate, now_ns)
        self.levels = {each: level for each, level in self.levels.items() if each == user}


@fault("a rate below the default is not heard", "L-RATE-1")
class OnlyRaises(Plain):
    def per_ns(self, user):
        rates = [self._rates.get(user), self.default_rate]
        known = [rate for rate in rates if rate is not None]
        return max(known) / NS_PER_S if known else None


@fault("a rate set before the first take is not heard", "L-RATE-1")
class SetTooEarly(Plain):
    def set_rate(self, user, rate, now_ns):
        known = user in self.levels
        super().set_rate(user, rate, now_ns)
        if not known and rate == 1000:
            del self._rates[user]
            self.before = self.settings()


@fault("unset_rate does nothing", "L-RATE-1", "S4-UNLIMITED-1")
class UnsetNothing(Plain):
    def unset_rate(self, user, now_ns):
        self.check(user, now_ns)


@fault("decimals go through binary floats", "L-RATE-1")
class BinaryDecimals(Plain):
    def per_ns(self, user):
        per_ns = super().per_ns(user)
        return None if per_ns is None else Fraction(float(per_ns))


@fault("no rate is the fastest rate", "S4-UNLIMITED-1")
class NoRateIsFast(Plain):
    def per_ns(self, user):
        return super().per_ns(user) or Fraction(10**4, NS_PER_S)


@fault("unlimited users have state", "S4-UNLIMITED-1", "L-MODEL-1")
class UnlimitedState(Plain):
    def try_take(self, user, now_ns):
        if self.rate_of(user) is None:
            self.store(user, Fraction(0), now_ns)
        return super().try_take(user, now_ns)

    def idle(self, user, now):
        return self.rate_of(user) is not None and super().idle(user, now)


# Bad input.


@fault("NaN is a rate", "L-INPUT-1")
class NanIsRate(Plain):
    def set_rate(self, user, rate, now_ns):
        if rate != rate:
            return
        super().set_rate(user, rate, now_ns)


@fault("anything is a user", "L-INPUT-1")
class AnythingIsUser(Plain):
    def check(self, user, now_ns):
        pass


@fault("checks after writing", "L-INPUT-1")
class ChecksLate(Plain):
    def set_burst(self, burst_ns, now_ns):
        self._burst_ns = burst_ns if isinstance(burst_ns, int) else self._burst_ns
        super().set_burst(burst_ns, now_ns)


# Quotas that follow steps.


@fault("a long quota at any time", "L-STEP-1", options={"auto_burst": True}, follows_steps=True)
class LongAtAnyTime(AutoBurstGcra):
    def __init__(self, *, auto_burst, **settings):
        super().__init__(**settings)

    def _full_since_ns(self, burst_ns, now_ns):
        return now_ns if self._start_ns is None else min(now_ns, self._start_ns + burst_ns)


@fault("steps are not heard", "L-STEP-1", options={"auto_burst": True}, follows_steps=True)
class DeafToSteps(AutoBurstGcra):
    def __init__(self, *, auto_burst, **settings):
        super().__init__(**settings)

    def end_step(self, start_ns, now_ns):
        pass


@fault("a jump is one endless step", "L-STEP-1", options={"auto_burst": True}, follows_steps=True)
class EndlessStep(AutoBurstGcra):
    def __init__(self, *, auto_burst, **settings):
        super().__init__(**settings)

    def end_step(self, start_ns, now_ns):
        super().end_step(start_ns, now_ns)
        self._start_ns = min(start_ns, self._start_ns)


# A limiter that is right, and a declaration that is wrong.


def declared(name: str, *caught_by: str, **numbers) -> Fault:
    return Fault(name, caught_by, promise(name, "gcra", **numbers))


LOOSE_BOUND = declared(
    "a loose bound",
    "L-TIGHT-1",
    bound=lambda window, rate, burst: even_bound(window, rate, burst) + 1,
)
LOOSE_IN_LONG_WINDOWS = declared(
    "a bound loose in long windows",
    "L-TIGHT-1",
    bound=lambda window, rate, burst: even_bound(window + window // 50, rate, burst),
)
STRICT_BOUND = declared(
    "a bound too strict", "L-BOUND-1", bound=lambda window, rate, burst: even_bound(window, rate, 0)
)
LOOSE_EVENNESS = declared(
    "a loose evenness", "L-EVEN-1", evenness_ns=lambda rate, burst: even_wait_ns(rate, burst) + 2
)
STRICT_EVENNESS = declared(
    "an evenness too strict",
    "L-EVEN-1",
    evenness_ns=lambda rate, burst: even_wait_ns(rate, burst) // 2,
)
LOW_REACH = declared(
    "a reach too low",
    "L-REACH-1",
    reach=lambda rate, burst, step, streams: (
        (full := even_reach(rate, burst, step, streams)) and full * 3 / 4
    ),
)
HIGH_REACH = declared(
    "a reach too high", "L-REACH-1", reach=lambda rate, burst, step, streams: rate
)
NO_REACH = declared("no reach at all", "L-REACH-1", reach=lambda *_: None)
WRONG_FAMILY = Fault(
    "a log that claims to be GCRA",
    ("L-CASES-1", "L-MODEL-1", "L-ALIKE-1", "L-CHANGE-1"),
    promise("a log that claims to be GCRA", "rolling_window"),
)
UNDECLARED = Fault(
    "a window of a second, undeclared",
    ("S2-WINDOW-1", "S2-EVEN-1"),
    promise(
        "a window of a second, undeclared",
        "rolling_window",
        bound=ROLLING_WINDOW_1S.bound,
        evenness_ns=ROLLING_WINDOW_1S.evenness_ns,
        reach=ROLLING_WINDOW_1S.reach,
        decides_like="rolling_window",
        options=ROLLING_WINDOW_1S.options,
    ),
)
NEEDLESS = Fault(
    "a deviation that no longer fails",
    ("S2-WINDOW-1",),
    promise(
        "a deviation that no longer fails", GCRA.make, deviations={"S2-WINDOW-1": "once it did"}
    ),
)
