"""Who is who: users apart, unlimited users, and whose rate is whose."""

import sys
from fractions import Fraction

from hypothesis import given

from conformance.level1.grants import take_all
from conformance.level1.histories import Player, moves, openings, play_beside, player, teller
from conformance.level1.settings import S
from conformance.rules import rule

_EVERYBODY = ("pause", "step", "set_default_rate", "set_burst", "cleanup_idle_users")


@rule("S4-APART-1")
def test_S4_APART_1_no_call_for_one_user_shows_for_another(contract, trial, hypothesis_settings):
    @hypothesis_settings
    @given(opening=openings, history=moves(contract, size=30))
    def run(opening, history):
        crowd, alone = player(contract, opening), player(contract, opening)
        differ = teller(trial, opening)
        for number, move in enumerate(history):
            got, expected = crowd.play(move), None
            if move[0] in _EVERYBODY or move[1] == "b":
                expected = alone.play(move)
                if move[0].startswith("try_take") and got != expected:
                    differ(f"answer of move {number + 1} {move}", got, expected)
            alone.now_ns = crowd.now_ns
            mine, its = crowd.answers("b"), alone.answers("b")
            if mine != its:
                differ(f"answers for b after move {number + 1} {move}", mine, its)

    run()


@rule("S4-APART-1")
def test_S4_APART_1_a_crowd_takes_nothing_from_a_newcomer(contract, trial):
    limiter = contract.limiter(10)
    for number in range(200):
        take_all(limiter, f"user {number}", number)
    got, promised = take_all(limiter, "newcomer", 200), contract.bound(0, Fraction(10), S // 10)
    trial.figure(f"full quota of {promised} beside 200 users out of quota")
    trial.check(
        got == promised,
        user="newcomer",
        at="200 ns",
        seen=f"{got} takes beside 200 users out of quota",
        promised=f"{promised}, a full quota",
    )


@rule("S4-UNLIMITED-1")
def test_S4_UNLIMITED_1_no_rate_no_limit(contract, trial):
    limiter = contract.limiter(None, rates={"a": 1})
    hold_unlimited(trial, limiter, "b", 0, "without a default rate")
    take_all(limiter, "a", 0)
    limiter.unset_rate("a", 1)
    hold_unlimited(trial, limiter, "a", 1, "after its rate was unset")
    limiter.set_default_rate(1, 2)
    take_all(limiter, "b", 2)
    trial.check(
        not limiter.try_take("b", 3), user="b", at="3 ns", seen="no limit", promised="1 tok/s"
    )
    limiter.set_default_rate(None, 4)
    hold_unlimited(trial, limiter, "b", 4, "after the default rate was taken away")


def hold_unlimited(trial, limiter, user, now, why):
    seen = limiter.available(user, now), limiter.ready_at_ns(user, now), limiter.rate_of(user)
    trial.check(
        seen == (sys.maxsize, now, None),
        user=user,
        at=f"{now} ns {why}",
        seen=f"available {seen[0]}, ready at {seen[1]} ns, rate {seen[2]}",
        promised=f"available {sys.maxsize}, ready at {now} ns, rate None",
    )
    takes = sum(limiter.try_take(user, now) is True for _take in range(1_000))
    many = limiter.try_take_many(user, 10**4, now)
    limiter.refund(user, now)
    trial.check(
        (takes, many, len(limiter)) == (1_000, 10**4, 0),
        user=user,
        at=f"{now} ns {why}",
        seen=f"{takes} of 1000 takes, {many} of 10000 at once, {len(limiter)} users with state",
        promised="all of them and no state",
    )


@rule("L-RATE-1")
def test_L_RATE_1_own_before_default_before_none(contract, trial):
    ways = {
        "given at first": lambda: contract.limiter(10, rates={"a": 1000, "b": Fraction(1, 10)}),
        "set before the first take": _set_late(contract),
    }
    for how, make in ways.items():
        limiter = make()
        for user, rate in (("a", 1000), ("b", Fraction(1, 10)), ("c", 10)):
            rate = Fraction(rate)
            trial.check(
                limiter.rate_of(user) == rate,
                user=user,
                at=how,
                seen=f"rate_of {limiter.rate_of(user)}",
                promised=f"{rate} tok/s",
            )
            # A change gives nobody more at that instant, so look a while later.
            hold_rate(contract, trial, limiter, user, rate, 3600 * S, how)
        for user in "ab":
            limiter.unset_rate(user, 7200 * S)
            trial.check(
                limiter.rate_of(user) == 10,
                user=user,
                at=f"{how}, then unset",
                seen=f"rate_of {limiter.rate_of(user)}",
                promised="10 tok/s, the default",
            )
            hold_rate(contract, trial, limiter, user, Fraction(10), 10800 * S, f"{how}, then unset")


def _set_late(contract):
    def make():
        limiter = contract.limiter(10)
        limiter.set_rate("a", 1000, 0)
        limiter.set_rate("b", Fraction(1, 10), 0)
        return limiter

    return make


def hold_rate(contract, trial, limiter, user, rate, now, how):
    """A full quota, and then the wait that the rate brings."""
    got, full = take_all(limiter, user, now), contract.bound(0, rate, S // 10)
    wait = limiter.ready_at_ns(user, now) - now
    twin = contract.limiter(rate)
    take_all(twin, user, now)
    promised = twin.ready_at_ns(user, now) - now
    trial.check(
        (got, wait) == (full, promised),
        user=user,
        at=f"{now} ns, rate {rate} {how}",
        seen=f"{got} takes at once, the next after {wait} ns",
        promised=f"{full}, the next after {promised} ns",
    )


@rule("L-RATE-1")
def test_L_RATE_1_one_value_however_written(contract, trial, hypothesis_settings):
    written = [
        (10, Fraction(10), "10", 10.0, "1e1", "10.0"),
        (Fraction(1, 10), "0.1", 0.1, ".1", "1/10", "1e-1"),
        (Fraction(33), 33, "33", "33/1"),
        (Fraction(1234, 10), "123.4", 123.4),
        (Fraction(1, 3600), "1/3600"),
    ]
    history = [("try_take_many", "a", 3), ("pause", 77_777_777), ("try_take", "a")] * 12
    for same in written:
        for other in same[1:]:
            one, two = Player(contract.limiter(same[0])), Player(contract.limiter(None))
            two.limiter.set_rate("a", other, 0)

            def differ(where, got, expected, *, same=same, other=other):
                trial.broken(
                    user="a",
                    at=f"{where}, rate written {other!r} and {same[0]!r}",
                    seen=expected,
                    promised=got,
                )

            play_beside(history, one, two, before=lambda m: None, differ=differ, whose="a")
