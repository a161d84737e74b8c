"""Random histories against the definition, and GCRA against the token bucket."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from conformance import contracts
from conformance.level1.histories import (
    Player,
    asks,
    changes,
    openings,
    origins,
    pauses,
    play_beside,
    steps,
    teller,
)
from conformance.level1.machine import limiter_machine
from conformance.rules import rule


@rule("L-MODEL-1")
def test_L_MODEL_1_random_histories(contract, trial, hypothesis_settings):
    size = settings(parent=hypothesis_settings, stateful_step_count=40)
    run_state_machine_as_test(limiter_machine(contract, trial), settings=size)
    trial.figure(
        f"{size.max_examples} histories as "
        + (f"{contract.decides_like} is defined" if contract.decides_like else "promised")
    )


@rule("L-ALIKE-1", claimed=lambda contract: contract.decides_like == "gcra")
def test_L_ALIKE_1_gcra_and_token_bucket_decide_alike(contract, trial, hypothesis_settings):
    auto = contract.follows_steps
    pair = (
        [contracts.GCRA_AUTO, contracts.TOKEN_BUCKET_AUTO]
        if auto
        else [contracts.GCRA, contracts.TOKEN_BUCKET]
    )
    back = st.tuples(st.just("pause"), pauses.map(lambda ns: -ns))
    kinds = [asks, asks, changes, back, *([steps] if auto else [])]

    @hypothesis_settings
    @given(
        opening=openings,
        origin=origins,
        history=st.lists(st.one_of(*kinds), min_size=10, max_size=30),
    )
    def run(opening, origin, history):
        default, rates, burst_ns = opening
        for other in pair:
            if other.make == contract.make and other.options == contract.options:
                continue
            mine, its = (
                Player(each.limiter(default, rates=rates, burst_ns=burst_ns), origin)
                for each in (contract, other)
            )
            differ = teller(trial, opening, f", {other.name} beside it")
            play_beside(
                history,
                mine,
                its,
                before=lambda move: None,
                differ=differ,
            )

    run()
    trial.figure(f"{hypothesis_settings.max_examples} histories, each answer alike")
