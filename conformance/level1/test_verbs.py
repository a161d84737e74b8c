"""The verbs mean what they say: they agree, they add up, and a refund undoes a take."""

from hypothesis import given
from hypothesis import strategies as st

from conformance.level1.grants import MOST_AT_ONCE, take_all
from conformance.level1.histories import (
    USERS,
    Player,
    moves,
    openings,
    origins,
    play_beside,
    player,
    teller,
)
from conformance.level1.settings import settings_for
from conformance.rules import rule

MANY = 40


@rule("L-ANSWER-1")
def test_L_ANSWER_1_the_verbs_agree(contract, trial, hypothesis_settings):
    @hypothesis_settings
    @given(opening=openings, origin=origins, history=moves(contract))
    def run(opening, origin, history):
        one = player(contract, opening, origin)
        for move in history:
            one.play(move)
            for user in USERS:
                available, wait = one.answers([user])[0]
                if not (available >= 0 and wait >= 0 and (available > 0) == (wait == 0)):
                    trial.broken(
                        user=user,
                        at=f"{one.now_ns} ns after {move}",
                        seen=f"available {available}, ready in {wait} ns",
                        promised="ready now iff something is available",
                    )
        for user in USERS:
            available = one.answers([user])[0][0]
            wanted = min(available, MANY)
            taken = [one.limiter.try_take(user, one.now_ns) for _take in range(wanted)]
            taken += [one.limiter.try_take(user, one.now_ns)] if wanted < MANY else []
            promised = [True] * wanted + [False] * (wanted < MANY)
            if not all(type(answer) is bool for answer in taken) or taken != promised:
                trial.broken(
                    user=user,
                    at=f"{one.now_ns} ns",
                    seen=f"takes that answer {taken}",
                    promised=f"{available} that pass, as available says, and no more",
                )

    run()


@rule("S3-READY-1")
def test_S3_READY_1_the_ready_instant_is_right_to_the_ns(contract, trial, hypothesis_settings):
    @hypothesis_settings
    @given(opening=openings, origin=origins, history=moves(contract), back=st.integers(1, 10**6))
    def run(opening, origin, history, back):
        one = player(contract, opening, origin)
        for move in history:
            one.play(move)
            if move[0] != "try_take_many":
                continue
            user = move[1]
            come_back(trial, one, user, back)

    run()


@rule("S3-READY-1")
def test_S3_READY_1_at_every_setting(contract, trial):
    instants = 0
    for setting in settings_for(contract):
        limiter = contract.limiter(setting.rate, burst_ns=setting.burst_ns)
        one = Player(limiter)
        for _spell in range(20):
            take_all(limiter, "a", one.now_ns)
            come_back(trial, one, "a", 1 + one.now_ns % 997)
            instants += 1
    trial.figure(f"{instants} ready instants right to the ns")


def come_back(trial, one, user, back):
    """Ask when, try all the way up to then, and then."""
    limiter, now = one.limiter, one.now_ns
    ready = limiter.ready_at_ns(user, now)
    for early in sorted({now, max(now, ready - back), max(now, ready - 1)} if ready > now else ()):
        if limiter.try_take(user, early):
            trial.broken(
                user=user,
                at=f"{early} ns",
                seen="a take that passes",
                promised=f"none before {ready} ns, as ready_at_ns said at {now} ns",
            )
    if not limiter.try_take(user, ready):
        trial.broken(
            user=user,
            at=f"{ready} ns",
            seen="a take that is denied",
            promised=f"that it passes, as ready_at_ns said at {now} ns",
        )
    one.now_ns = ready


@rule("L-MANY-1")
def test_L_MANY_1_many_is_as_many_single_takes(contract, trial, hypothesis_settings):
    @hypothesis_settings
    @given(
        opening=openings,
        history=moves(contract),
        counts=st.lists(st.integers(0, MANY), min_size=1, max_size=4),
    )
    def run(opening, history, counts):
        at_once, by_one = player(contract, opening), player(contract, opening)
        differ = teller(trial, opening)
        play_beside(history, at_once, by_one, before=lambda move: None, differ=differ)
        for user in USERS:
            for count in counts:
                got = at_once.limiter.try_take_many(user, count, at_once.now_ns)
                each = [by_one.limiter.try_take(user, by_one.now_ns) for _take in range(count)]
                if got != sum(each):
                    differ(f"{user}: try_take_many of {count}", got, sum(each))
                mine, its = at_once.answers(), by_one.answers()
                if mine != its or len(at_once.limiter) != len(by_one.limiter):
                    differ(f"{user}: state after try_take_many of {count}", mine, its)

    run()


@rule("L-ALL-1")
def test_L_ALL_1_a_batch_is_a_token_each_or_nothing(contract, trial, hypothesis_settings):
    @hypothesis_settings
    @given(
        opening=openings,
        history=moves(contract),
        batches=st.lists(st.lists(st.sampled_from(USERS), max_size=9), min_size=1, max_size=4),
    )
    def run(opening, history, batches):
        at_once, by_one = player(contract, opening), player(contract, opening)
        differ = teller(trial, opening)
        play_beside(history, at_once, by_one, before=lambda move: None, differ=differ)
        for batch in batches:
            now = by_one.now_ns
            due = all(by_one.limiter.available(user, now) >= batch.count(user) for user in batch)
            got = at_once.limiter.try_take_all(batch, now)
            if got is not due:
                differ(f"try_take_all of {batch}", got, due)
            for user in batch if due else ():
                by_one.limiter.try_take(user, now)
            mine, its = at_once.answers(), by_one.answers()
            if mine != its:
                differ(f"state after try_take_all of {batch}, {got}", mine, its)

    run()


@rule("L-REFUND-1")
def test_L_REFUND_1_a_refund_is_an_exact_inverse(contract, trial, hypothesis_settings):
    @hypothesis_settings
    @given(
        opening=openings,
        origin=origins,
        history=moves(contract, size=12),
        user=st.sampled_from(USERS),
        wanted=st.integers(1, 6),
        refunds=st.integers(1, 6),
        future=moves(contract, size=12),
    )
    def run(opening, origin, history, user, wanted, refunds, future):
        refunded, never = player(contract, opening, origin), player(contract, opening, origin)
        for move in history:
            refunded.play(move)
            never.play(move)
        taken = sum(refunded.limiter.try_take(user, refunded.now_ns) for _ in range(wanted))
        back = min(taken, refunds)
        for _refund in range(back):
            refunded.limiter.refund(user, refunded.now_ns)
        for _take in range(taken - back):
            never.limiter.try_take(user, never.now_ns)
        differ = teller(trial, opening)
        told = f"{user}, {taken} takes and {back} refunds at {never.now_ns} ns"
        if refunded.answers() != never.answers():
            differ(f"answers right after {told}", refunded.answers(), never.answers())
        play_beside(
            future,
            refunded,
            never,
            before=lambda move: None,
            differ=lambda where, got, expected: differ(f"{where}, {told}", got, expected),
            size=False,  # who is full again is forgotten, who was full all along perhaps not yet
        )

    run()


@rule("L-FULL-1")
def test_L_FULL_1_refunds_mint_nothing(contract, trial):
    for setting in settings_for(contract):
        limiter = contract.limiter(setting.rate, burst_ns=setting.burst_ns)
        full = contract.bound(0, *setting)

        def held(what, now, *, limiter=limiter, setting=setting, full=full):
            got, state = take_all(limiter, "a", now), len(limiter)
            if got != full:
                trial.broken(
                    user="a",
                    at=f"{now} ns after {what} at {setting}",
                    seen=f"{got if got < MOST_AT_ONCE else 'endless'} takes at once",
                    promised=f"{full}, a full quota",
                )
            return state

        for _refund in range(5):
            limiter.refund("a", 0)
        if len(limiter):
            trial.broken(user="a", at=str(setting), seen="state", promised="none after refunds")
        held("refunds without a take", 0)
        for _refund in range(full):
            limiter.refund("a", 0)
        trial.check(
            len(limiter) == 0,
            user="a",
            at=f"0 ns at {setting}",
            seen="state of a user who is full again after a refund",
            promised="none",
        )
        limiter.try_take("a", 0)
        for _refund in range(full + 3):
            limiter.refund("a", 0)
        held("1 take and more refunds than that", 0)
        later = 10 * (contract.evenness_ns(*setting) + setting.burst_ns + 1)
        limiter.refund("a", later)
        held("a refund long after the last take", later)
