"""What must not show does not: denied takes, questions, and cleaning up."""

from hypothesis import given
from hypothesis import strategies as st

from conformance.level1.grants import take_all
from conformance.level1.histories import (
    USERS,
    moves,
    openings,
    origins,
    play_beside,
    player,
    teller,
)
from conformance.level1.settings import settings_for
from conformance.rules import rule


@rule("L-DENIED-1")
def test_L_DENIED_1_denied_takes_do_not_show(contract, trial, hypothesis_settings):
    @hypothesis_settings
    @given(opening=openings, origin=origins, history=moves(contract), tries=st.integers(1, 3))
    def run(opening, origin, history, tries):
        pushy, patient = player(contract, opening, origin), player(contract, opening, origin)
        differ = teller(trial, opening)

        def push(move):
            for user in USERS:
                if patient.limiter.available(user, patient.now_ns):
                    continue
                for _try in range(tries):
                    if pushy.limiter.try_take(user, pushy.now_ns):
                        differ(f"a try of {user} at {pushy.now_ns} ns", True, False)

        play_beside([*history, ("pause", 0)], pushy, patient, before=push, differ=differ)

    run()


@rule("L-DENIED-1")
def test_L_DENIED_1_a_flood_of_tries_costs_nothing(contract, trial):
    for setting in settings_for(contract):
        pushy, patient = (contract.limiter(setting.rate, burst_ns=setting.burst_ns) for _ in "12")
        take_all(pushy, "a", 0), take_all(patient, "a", 0)
        ready = patient.ready_at_ns("a", 0)
        for part in range(64):
            pushy.try_take("a", part * (ready - 1) // 64)
        seen = pushy.ready_at_ns("a", ready - 1), pushy.try_take("a", ready)
        trial.check(
            seen == (ready, True),
            user="a",
            at=f"{ready} ns after 64 denied tries at {setting}",
            seen=f"ready at {seen[0]} ns, a take {'passes' if seen[1] else 'is denied'}",
            promised=f"ready at {ready} ns, as without them",
        )


@rule("L-ASK-1")
def test_L_ASK_1_questions_do_not_show(contract, trial, hypothesis_settings):
    @hypothesis_settings
    @given(opening=openings, origin=origins, history=moves(contract))
    def run(opening, origin, history):
        asked, quiet = player(contract, opening, origin), player(contract, opening, origin)
        differ = teller(trial, opening)
        for move in history:
            ask(asked.limiter, asked.now_ns)
            got, expected = asked.play(move), quiet.play(move)
            if got != expected:
                differ(f"answer of {move} at {asked.now_ns} ns", got, expected)
            if len(asked.limiter) != len(quiet.limiter):
                differ(f"users with state after {move}", len(asked.limiter), len(quiet.limiter))
        ask(asked.limiter, asked.now_ns)
        if asked.answers() != quiet.answers():
            differ("answers at the end", asked.answers(), quiet.answers())

    def ask(limiter, now):
        for user in (*USERS, "stranger"):
            limiter.available(user, now)
            limiter.ready_at_ns(user, now)
            limiter.rate_of(user)
        repr(limiter)

    run()


@rule("L-CLEANUP-1")
def test_L_CLEANUP_1_cleaning_up_does_not_show(contract, trial, hypothesis_settings):
    @hypothesis_settings
    @given(
        opening=openings,
        origin=origins,
        history=moves(contract, size=30),
        often=st.integers(1, 3),
    )
    def run(opening, origin, history, often):
        clean, dusty = player(contract, opening, origin), player(contract, opening, origin)
        count = 0

        def tidy(move):
            nonlocal count
            count += 1
            if count % often == 0:
                clean.limiter.cleanup_idle_users(clean.now_ns)

        kept = [move for move in history if move[0] != "cleanup_idle_users"]
        play_beside(kept, clean, dusty, before=tidy, differ=teller(trial, opening), size=False)

    run()


@rule("L-CLEANUP-1")
def test_L_CLEANUP_1_a_user_in_debt_is_kept(contract, trial):
    for setting in settings_for(contract):
        limiter = contract.limiter(setting.rate, burst_ns=setting.burst_ns)
        take_all(limiter, "a", 0)
        ready = limiter.ready_at_ns("a", 0)
        for part in range(9):
            limiter.cleanup_idle_users(part * (ready - 1) // 8)
        trial.check(
            not limiter.try_take("a", ready - 1),
            user="a",
            at=f"{ready - 1} ns at {setting}",
            seen="a take that passes after clean-up",
            promised=f"none before {ready} ns, as without it",
        )
