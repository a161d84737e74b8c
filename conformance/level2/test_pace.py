"""S2: all streams of a user share one quota, paid out evenly."""

import random
from fractions import Fraction
from itertools import pairwise

import pytest

from conformance.level2.bench import BURST_NS, MS, SECOND
from conformance.level2.verdicts import check_windows, ms, pace
from conformance.rules import rule

LONG = {"max_model_len": 4096, "num_blocks": 4096}


def decides_like_gcra(contract):
    return contract.decides_like == "gcra"


@rule("S2-TIMELINE-2", claimed=decides_like_gcra)
def test_S2_TIMELINE_2(bench):
    engine = bench.engine(rates={"A": 10}, step_ns=30 * MS)
    for i in range(4):
        engine.add(f"a{i}", user="A", max_tokens=30)
    due = {0: 2, 120: 1, 210: 1, 300: 1}
    for at in range(0, 330, 30):
        seen = len(engine.step().sampled)
        bench.check(
            seen == due.get(at, 0),
            user="A",
            at=f"{at} ms",
            seen=f"{seen} tokens",
            promised=due.get(at, 0),
        )
    bench.trial.figure("2 at 0, 1 at 120, 210, 300 ms")


@rule("S2-REACH-2")
@pytest.mark.parametrize("streams", [1, 4])
def test_S2_REACH_2(bench, streams):
    """20/s with some streams and 100/s beside it, over 10 s from the first token."""
    rates = {"slow": 20, "fast": 100}
    engine = bench.engine(rates=rates, **LONG)
    draw = random.Random(streams)
    for user in rates:
        for i in range(streams):
            engine.add(f"{user}{i}", user=user, prompt=3 + i, max_tokens=2000)
    # Uneven steps for a backend that pays all of the rate whatever the step's length.
    steps = range(2, 11)
    if any(bench.reach(r, s * MS, streams) < r for r in rates.values() for s in steps):
        steps = range(10, 11)
    while engine.clock.elapsed_ns < 10 * SECOND:
        engine.step(draw.choice(steps) * MS)
    origin = engine.clock.start_ns
    for user, rate in rates.items():
        instants = engine.history.dispatches(user)
        seen = pace(instants, origin, origin + 10 * SECOND)
        least = Fraction(99, 100) * bench.reach(rate, 10 * MS, streams)
        most = rate + Fraction(rate + 10, 100)
        bench.check(
            least <= seen <= most,
            user=user,
            at=f"first 10 s, {streams} streams",
            seen=f"{float(seen):.2f} tokens/s",
            promised=f"{float(least):.2f} to {float(most):.2f}",
        )
        for count, at in enumerate(instants):
            need = int(bench.reach(rate, 10 * MS, streams) * (at - origin) / SECOND)
            bench.check(
                count + 1 >= need,
                user=user,
                at=f"first {ms(at - origin)}",
                seen=f"{count + 1} tokens",
                promised=f"at least {need}",
            )

        def in_a_second(width, rate=rate):
            return int((width + BURST_NS) * rate / SECOND) + 1

        check_windows(bench, user, instants, in_a_second, origin)
        bench.trial.figure(f"{float(seen):.1f} of {rate} tok/s")
        bench.trial.pace(
            f"{user}, {streams} streams",
            [at - origin for at in instants],
            lambda width, rate=rate: bench.backend.bound(width, Fraction(rate), BURST_NS),
            rate,
        )


@rule("S2-SHARE-2")
def test_S2_SHARE_2(bench):
    """1, 4 and 16 streams get the same."""
    seen = {}
    for streams in (1, 4, 16):
        engine = bench.engine(rates={"A": 20}, max_num_seqs=20, **LONG)
        for i in range(streams):
            engine.add(f"a{i}", user="A", prompt=2, max_tokens=400)
        engine.run_for(10 * SECOND)
        bench.check_bounds(engine)
        seen[streams] = len(engine.history.dispatches("A"))
    bench.check(
        max(seen.values()) - min(seen.values()) <= bench.full(20),
        user="A",
        at="10 s",
        seen=f"tokens by number of streams {seen}",
        promised=f"at most {bench.full(20)} apart",
    )
    bench.trial.figure(f"{seen[1]}, {seen[4]}, {seen[16]} tokens with 1, 4, 16 streams")


@rule("S2-BOUND-2")
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_S2_BOUND_2(bench, policy):
    """Uneven steps, some of no length, arrivals, aborts and preemptions."""
    rates = {"a": 7, "b": Fraction(100, 3), "c": 250}
    engine = bench.engine(
        rates=rates, policy=policy, max_num_seqs=12, num_blocks=60, max_model_len=120
    )
    draw = random.Random(policy)
    for step in range(500):
        if draw.random() < 0.3:
            user = draw.choice("abcd")
            engine.add(
                f"{user}{step}",
                user=user,
                prompt=draw.randrange(1, 40),
                max_tokens=draw.choice([1, 1, 5, 60]),
                priority=draw.randrange(2),
            )
        live = [log.id for log in engine.requests.values() if not log.finished]
        if live and draw.random() < 0.05:
            engine.abort(draw.choice(live), in_flight=draw.random() < 0.5)
        engine.step(draw.choice([0, 1, 3, 10, 40, 150]) * MS)
    bench.check_bounds(engine)


@rule("S2-EVEN-2")
@pytest.mark.parametrize("rate", [10, 33, "100/7"])
def test_S2_EVEN_2(bench, rate):
    engine = bench.engine(rates={"A": rate}, **LONG)
    for i in range(3):
        engine.add(f"a{i}", user="A", max_tokens=400)
    engine.run_for(6 * SECOND)
    instants = engine.history.dispatches("A")
    most = bench.evenness_ns(rate) + engine.step_ns
    gaps = [(after - before, before) for before, after in pairwise(instants)]
    longest, at = max(gaps)
    bench.check(
        longest <= most,
        user="A",
        at=f"from {ms(at - engine.clock.start_ns)}, {rate} tokens/s",
        seen=f"{ms(longest)} without a token",
        promised=f"at most {ms(most)}",
    )
    bench.trial.figure(f"longest gap {ms(longest)} at {rate} tok/s")
