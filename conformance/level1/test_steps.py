"""A quota that follows the step: longer steps lose nothing, and nothing else changes."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from conformance.level1.definitions import LONGEST_STEP_NS
from conformance.level1.grants import fullest, take_all
from conformance.level1.histories import pauses
from conformance.level1.settings import BURSTS_NS, MS, S
from conformance.rules import rule

follows = {"claimed": lambda contract: contract.follows_steps}
SLOW = [Fraction(text) for text in ("1/10", "10/13", "3", "10", "33")]


@rule("L-STEP-1", **follows)
def test_L_STEP_1_no_window_exceeds_the_bound_of_its_first_step(
    contract, trial, hypothesis_settings
):
    @hypothesis_settings
    @given(
        rate=st.sampled_from(SLOW),
        burst=st.sampled_from(BURSTS_NS),
        parts=st.lists(
            st.tuples(st.integers(0, 3 * S) | pauses, st.integers(1, 40), st.integers(0, 3)),
            max_size=14,
        ),
    )
    def run(rate, burst, parts):
        limiter, now, grants, ended = contract.limiter(rate, burst_ns=burst), 0, [], {}
        for length, wanted, kind in parts:
            now += length
            if kind:
                limiter.end_step(now - length, now)
                ended[now] = max(length, ended.get(now, 0))
            taken = limiter.try_take_many("a", wanted, now)
            if kind == 2 and taken:
                limiter.refund("a", now)
                taken -= 1
            if kind == 3:
                limiter.cleanup_idle_users(now)
            grants += [now] * taken
        for first in range(len(grants)):
            spare = max(burst, ended.get(grants[first], 0))
            window = fullest(
                grants[first:], lambda width, b=spare: contract.bound(width, rate, b), starts=1
            )
            if window is not None:
                trial.broken(
                    user="a",
                    at=f"{window} at {rate} tok/s, burst {burst} ns, first step "
                    f"{ended.get(grants[first], 0)} ns",
                    seen=f"{window.grants} grants",
                    promised=f"at most {window.promised}",
                )

    run()


@rule("L-STEP-1", **follows)
def test_L_STEP_1_long_steps_lose_nothing(contract, trial):
    for rate, streams, step in ((10, 3, 250 * MS), (100, 20, 150 * MS), (10, 40, 3 * S)):
        limiter, got = contract.limiter(rate), 0
        for number in range(200):
            now = number * step
            if number:
                limiter.end_step(now - step, now)
            got += sum(limiter.try_take("a", now) for _stream in range(streams))
            if got * S < rate * now:
                trial.broken(
                    user="a",
                    at=f"[0, {now}] ns, {rate} tok/s, {streams} streams, steps of {step} ns",
                    seen=f"{got} grants",
                    promised=f"at least {rate * now / S:g}",
                )
        if step == 250 * MS:
            trial.figure(f"10 tok/s, 3 streams, 250 ms steps: {got * S / (200 * step):.2f} tok/s")


@rule("L-STEP-1", **follows)
def test_L_STEP_1_only_a_step_that_ended_now_counts(contract, trial):
    longest = LONGEST_STEP_NS
    for told, now, promised, why in (
        (None, 3600 * S, 2, "a pause is no step"),
        ((0, S), S, 11, "a step of a second at 10 tok/s"),
        ((0, S), S + 1, 2, "a ns after a step it is over"),
        ((0, 3600 * S), 3600 * S, 1 + 10 * longest // S, "a step counts for 10 s at most"),
        ((5, 10), 10, 2, "a step shorter than the burst"),
    ):
        limiter = contract.limiter(10)
        if told is not None:
            limiter.end_step(*told)
        said, got = limiter.available("a", now), take_all(limiter, "a", now)
        trial.check(
            said == got == promised,
            user="a",
            at=f"{now} ns, steps told {told}: {why}",
            seen=f"available {said}, {got} takes at once",
            promised=promised,
        )
        wait = limiter.ready_at_ns("a", now) - now
        trial.check(
            wait == 100 * MS,
            user="a",
            at=f"{now} ns, out of quota, steps told {told}: {why}",
            seen=f"ready in {wait} ns",
            promised=f"{100 * MS} ns, an interval as ever",
        )
