"""Faults in what a take, a refund and a question do. Every limiter in this file is *wrong*."""

import math
from fractions import Fraction

from plain_limiters import NS_PER_S, Plain, PlainWindow
from planted import fault

from conformance.contracts import ROLLING_WINDOW

LOG = {
    "bound": ROLLING_WINDOW.bound,
    "evenness_ns": ROLLING_WINDOW.evenness_ns,
    "reach": ROLLING_WINDOW.reach,
    "decides_like": "rolling_window",
}


@fault("burst 1 ns too long", "L-BOUND-1", "S2-WINDOW-1", "L-MODEL-1")
class BurstTooLong(Plain):
    def full(self, per_ns):
        return 1 + (self.burst_ns + 1) * per_ns


@fault("burst 1 ns too short", "L-TIGHT-1", "L-CASES-1", "L-ALIKE-1")
class BurstTooShort(Plain):
    def full(self, per_ns):
        return 1 + max(0, self.burst_ns - 1) * per_ns


@fault("a token too many", "L-BOUND-1", "S2-WINDOW-1")
class TokenTooMany(Plain):
    def full(self, per_ns):
        return 2 + self.burst_ns * per_ns


@fault("a token too few", "L-TIGHT-1", "L-REACH-1")
class TokenTooFew(Plain):
    def full(self, per_ns):
        return max(Fraction(1), self.burst_ns * per_ns)


@fault("test after increment", "L-TIGHT-1", "L-CASES-1")
class TestAfterIncrement(Plain):
    def passes(self, level, per_ns):
        return level >= min(2, self.full(per_ns))


@fault("grants on a fraction of a token", "L-BOUND-1", "L-ANSWER-1")
class GrantsOnFraction(Plain):
    def passes(self, level, per_ns):
        return level > 0


@fault("needs more than a token", "L-TIGHT-1", "L-ANSWER-1", "S3-READY-1")
class NeedsMore(Plain):
    def passes(self, level, per_ns):
        return level > 1


@fault("float state", "L-CLOCK-1", "S3-READY-1")
class FloatState(Plain):
    def store(self, user, level, now):
        self.levels[user] = float(level), float(now)

    def level(self, user, per_ns, now):
        return super().level(user, float(per_ns), float(now))


@fault("floor of 1/rate", "L-BOUND-1")
class FloorOfInterval(Plain):
    def cost(self, per_ns):
        return math.floor(1 / per_ns) * per_ns if per_ns <= 1 else Fraction(1)


@fault("ceiling of 1/rate", "L-TIGHT-1")
class CeilingOfInterval(Plain):
    def cost(self, per_ns):
        return math.ceil(1 / per_ns) * per_ns


@fault("fixed window of a second", "S2-WINDOW-1", "L-BOUND-1")
class FixedWindow(Plain):
    """Every second begins with a new allowance."""

    def level(self, user, per_ns, now):
        level, at = self.levels.get(user, (None, None))
        if level is None or now // NS_PER_S > at // NS_PER_S:
            return max(Fraction(1), per_ns * NS_PER_S)
        return level


@fault("fixed window as long as the burst", "S2-WINDOW-1", "L-BOUND-1", **LOG)
class FixedShortWindow(PlainWindow):
    def counts(self, at, now, span):
        return at // span == now // span


@fault("charge on denial", "L-DENIED-1", "S3-READY-1")
class ChargeOnDenial(Plain):
    def denied(self, user, level, now):
        self.store(user, level - 1, now)


@fault("a denial throws the fraction away", "L-DENIED-1", "L-REACH-1")
class DenialResets(Plain):
    def denied(self, user, level, now):
        self.store(user, Fraction(math.floor(level)), now)


@fault("the log counts denials", "L-DENIED-1", "S3-READY-1", **LOG)
class LogCountsDenials(PlainWindow):
    def denied(self, user, now):
        self.takes.setdefault(user, []).append(now)


@fault("one state for all users", "S4-APART-1")
class OneStateForAll(Plain):
    def level(self, user, per_ns, now):
        return super().level("everybody", per_ns, now)

    def store(self, user, level, now):
        super().store("everybody", level, now)


@fault("users share a crowded house", "S4-APART-1")
class CrowdedHouse(Plain):
    """Beyond 100 users, the newest takes over what another left."""

    def unseen(self, user, per_ns, now):
        if len(self.levels) > 100 and user not in self.levels:
            return self.level(next(iter(self.levels)), per_ns, now)
        return super().unseen(user, per_ns, now)


@fault("refund ignored", "L-REFUND-1")
class RefundIgnored(Plain):
    def refund(self, user, now_ns):
        self.check(user, now_ns)


@fault("refund doubled", "L-REFUND-1")
class RefundDoubled(Plain):
    def given_back(self, level, per_ns):
        return min(level + 2, self.full(per_ns))


@fault("refund fills up", "L-REFUND-1")
class RefundFillsUp(Plain):
    def given_back(self, level, per_ns):
        return self.full(per_ns)


@fault("refund rounds", "L-REFUND-1")
class RefundRounds(Plain):
    def given_back(self, level, per_ns):
        return min(Fraction(math.floor(level) + 1), self.full(per_ns))


@fault("refund above full", "L-FULL-1")
class RefundAboveFull(Plain):
    def given_back(self, level, per_ns):
        return level + 1

    def level(self, user, per_ns, now):
        level, at = self.levels.get(user, (self.full(per_ns), now))
        return max(level, min(level + (now - at) * per_ns, self.full(per_ns)))


@fault("credit for a stranger's refund", "L-FULL-1", "L-CASES-1")
class CreditForStranger(Plain):
    def refund(self, user, now_ns):
        self.check(user, now_ns)
        if (per_ns := self.per_ns(user)) is not None:
            self.store(user, self.level(user, per_ns, now_ns) + 1, now_ns)

    def level(self, user, per_ns, now):
        level, at = self.levels.get(user, (self.full(per_ns), now))
        return max(level, min(level + (now - at) * per_ns, self.full(per_ns)))


@fault("a full user keeps state after a refund", "L-FULL-1")
class KeepsFullUser(Plain):
    def settle(self, user, level, per_ns, now):
        self.store(user, level, now)


@fault("ready 1 ns early", "S3-READY-1", "L-CASES-1")
class ReadyEarly(Plain):
    def ready_in(self, level, per_ns):
        return max(0, math.floor((1 - level) / per_ns))


@fault("ready 1 ns late", "S3-READY-1")
class ReadyLate(Plain):
    def ready_in(self, level, per_ns):
        return math.floor((1 - level) / per_ns) + 1 if level < 1 else 0


@fault("ready when the debt is paid", "S3-READY-1")
class ReadyAtArrivalTime(Plain):
    def ready_in(self, level, per_ns):
        lacking = self.full(per_ns) - level
        return math.ceil(lacking / per_ns) if level < 1 else 0


@fault("available counts one too many", "L-ANSWER-1")
class AvailableTooMany(Plain):
    def count(self, level):
        return max(0, math.ceil(level))


@fault("answers with a number", "L-ANSWER-1")
class AnswersWithNumber(Plain):
    def try_take(self, user, now_ns):
        return int(super().try_take(user, now_ns))


@fault("many means all or nothing", "L-MANY-1", "L-MODEL-1")
class AllOrNothing(Plain):
    def try_take_many(self, user, count, now_ns):
        if self.available(user, now_ns) < count:
            return 0
        return super().try_take_many(user, count, now_ns)


@fault("many leaves the last", "L-MANY-1")
class LeavesTheLast(Plain):
    def try_take_many(self, user, count, now_ns):
        spare = 1 if count > 3 else 0
        return super().try_take_many(user, max(0, count - spare), now_ns)


@fault("a batch that is refused keeps what it took", "L-ALL-1")
class KeepsHalfABatch(Plain):
    def try_take_all(self, users, now_ns):
        return all(self.try_take(user, now_ns) for user in users)


@fault("a batch charges each user once", "L-ALL-1")
class ChargesABatchOnce(Plain):
    def try_take_all(self, users, now_ns):
        return super().try_take_all(list(dict.fromkeys(users)), now_ns)


@fault("a negative count is credit", "L-INPUT-1")
class NegativeCount(Plain):
    def try_take_many(self, user, count, now_ns):
        if isinstance(count, int) and count < 0 and user in self.levels:
            level, at = self.levels[user]
            self.levels[user] = level - count, at
            return count
        return super().try_take_many(user, count, now_ns)


@fault("pays in pairs", "L-EVEN-1", "S2-EVEN-1", "L-REACH-1")
class PaysInPairs(Plain):
    def try_take(self, user, now_ns):
        if user in self.levels and self.levels[user][1] != now_ns and self.per_ns(user):
            per_ns = self.per_ns(user)
            if self.level(user, per_ns, now_ns) < min(2, self.full(per_ns)):
                return False
        return super().try_take(user, now_ns)


@fault("a log that leaves its edge out", "L-TIGHT-1", "L-EVEN-1", "L-CASES-1", **LOG)
class LogEdge(PlainWindow):
    def counts(self, at, now, span):
        return at >= now - span


@fault("elapsed time without a sign", "L-BACK-1")
class ElapsedWithoutSign(Plain):
    def elapsed(self, now, at):
        return abs(now - at)


@fault("time back is time again", "L-BACK-1")
class TimeBackAgain(Plain):
    """A denial notes the instant, so that the time up to the last one counts twice."""

    def elapsed(self, now, at):
        return max(0, now - at)

    def denied(self, user, level, now):
        self.store(user, level, now)


@fault("zero is no time", "L-CLOCK-1", "L-CASES-1")
class ZeroIsNoTime(Plain):
    def level(self, user, per_ns, now):
        _level, at = self.levels.get(user, (self.full(per_ns), now))
        if not at:
            return self.full(per_ns)
        return super().level(user, per_ns, now)


@fault("time below zero is no time", "L-CLOCK-1")
class BelowZeroIsNoTime(Plain):
    def elapsed(self, now, at):
        return now - max(at, 0)


@fault("zero is no level", "L-BOUND-1", "S2-WINDOW-1")
class ZeroIsNoLevel(Plain):
    def level(self, user, per_ns, now):
        level, _at = self.levels.get(user, (None, None))
        if not level:
            return self.full(per_ns)
        return super().level(user, per_ns, now)
