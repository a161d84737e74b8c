"""Time is an argument: it starts anywhere, and stepping back gains nothing."""

from hypothesis import given
from hypothesis import strategies as st

from conformance.level1.grants import take_all
from conformance.level1.histories import USERS, moves, openings, pauses, player, teller
from conformance.level1.settings import settings_for
from conformance.profiles import scaled
from conformance.rules import rule

FAR = (2**63 - 3600 * 10**9, -(2**62), 10**18 + 1)


@rule("L-CLOCK-1")
def test_L_CLOCK_1_the_clock_starts_anywhere(contract, trial, hypothesis_settings):
    @scaled(hypothesis_settings, 0.5)
    @given(opening=openings, history=moves(contract, size=12))
    def run(opening, history):
        differ = teller(trial, opening)
        told, instants = story(contract, opening, history, 0)
        # So that each instant that matters falls on 0 once, and once on -1.
        nears = sorted({-at + off for at in instants[:12] for off in (0, -1)})
        for origin in (*FAR, *nears):
            shifted, _ = story(contract, opening, history, origin)
            if shifted != told:
                where = next(
                    i for i, (a, b) in enumerate(zip(shifted, told, strict=True)) if a != b
                )
                differ(
                    f"move {where + 1} {history[where]} with a clock that starts at {origin} ns",
                    shifted[where],
                    told[where],
                )

    run()


@rule("L-CLOCK-1")
def test_L_CLOCK_1_at_every_setting(contract, trial):
    for setting in settings_for(contract):
        opening = setting.rate, {}, setting.burst_ns
        history = [("try_take_many", "a", 20), ("pause", 7_654_321), ("try_take", "a")] * 5
        told, instants = story(contract, opening, history, 0)
        for origin in (*FAR, *sorted({-at for at in instants})):
            shifted, _ = story(contract, opening, history, origin)
            trial.check(
                shifted == told,
                user="a",
                at=f"clock that starts at {origin} ns, {setting}",
                seen=shifted,
                promised=told,
            )
    trial.figure("clocks that start below, at and 2^63 ns above zero decide alike")


def story(contract, opening, history, origin):
    """Every answer, instants counted from the origin; and the instants that matter."""
    one = player(contract, opening, origin)
    told, instants = [], {0}
    for move in history:
        answer = one.play(move)
        shown = answer if move[0].startswith("try_take") else None
        told.append((shown, one.answers(), len(one.limiter)))
        now = one.now_ns - origin
        instants |= {now, *(now + wait for _, wait in told[-1][1])}
        # Where GCRA's arrival time, or the end of a bucket's debt, lies.
        instants |= {now + wait + opening[2] for _, wait in told[-1][1]}
    return told, sorted(instants)


@rule("L-BACK-1")
def test_L_BACK_1_out_of_quota_at_every_earlier_instant(contract, trial, hypothesis_settings):
    @hypothesis_settings
    @given(
        opening=openings,
        history=moves(contract, size=10, changing=False),
        backs=st.lists(pauses | st.integers(0, 10**15), min_size=1, max_size=4),
    )
    def run(opening, history, backs):
        one = player(contract, opening)
        for move in history:
            one.play(move)
        now = one.now_ns
        for user in USERS:
            if one.limiter.rate_of(user) is None or one.limiter.available(user, now) > 500:
                continue
            take_all(one.limiter, user, now)
            ready = one.limiter.ready_at_ns(user, now)
            for back in backs:
                passed = one.limiter.try_take(user, now - back)
                said = one.limiter.available(user, now - back)
                trial.check(
                    (passed, said) == (False, 0),
                    user=user,
                    at=f"{now - back} ns, after it was out of quota at {now} ns",
                    seen=f"a take that {'passes' if passed else 'is denied'}, available {said}",
                    promised="denied, 0",
                )
            after = one.limiter.ready_at_ns(user, now)
            trial.check(
                after == ready,
                user=user,
                at=f"{now} ns, after tries up to {max(backs)} ns earlier",
                seen=f"ready at {after} ns",
                promised=f"ready at {ready} ns, as before them",
            )

    run()


@rule("L-BACK-1")
def test_L_BACK_1_takes_at_earlier_instants_gain_nothing(contract, trial, hypothesis_settings):
    @hypothesis_settings
    @given(
        opening=openings,
        history=moves(contract, size=10, changing=False),
        excursions=st.lists(
            st.tuples(st.sampled_from(USERS), pauses, st.integers(0, 3)), min_size=1, max_size=4
        ),
        later=st.lists(pauses, min_size=1, max_size=4),
    )
    def run(opening, history, excursions, later):
        back, forth = player(contract, opening), player(contract, opening)
        for move in history:
            back.play(move)
            forth.play(move)
        for user, earlier, count in excursions:
            back.limiter.try_take_many(user, count, back.now_ns - earlier)
        for pause in (0, *later):
            back.now_ns += pause
            forth.now_ns += pause
            for user, mine, its in zip(USERS, back.answers(), forth.answers(), strict=True):
                if mine[0] > its[0] or mine[1] < its[1]:
                    trial.broken(
                        user=user,
                        at=f"{back.now_ns} ns, after takes at earlier instants",
                        seen=f"available {mine[0]}, ready in {mine[1]} ns",
                        promised=f"no more than {its[0]} and no sooner than in {its[1]} ns, as "
                        "without them",
                    )

    run()
