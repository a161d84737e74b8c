"""S2: one quota a user, whatever becomes of its requests, the clock and the engine."""

import random
from itertools import pairwise

import pytest

from conformance.level2.bench import BURST_NS, MS, SECOND
from conformance.level2.verdicts import check_turns, check_whole, check_windows, drain, ms
from conformance.rules import rule


@rule("S2-BOUND-2")
def test_S2_BOUND_2_a_hundred_calls_at_once(bench):
    """100 concurrent calls of one user, limit 100 tokens per second: all of them end."""
    engine = bench.engine(rates={"A": 100}, max_num_seqs=32, num_blocks=512)
    for i in range(100):
        engine.add(f"a{i}", user="A", prompt=1 + i % 7, max_tokens=1 + i % 5)
    drain(bench, engine)
    bench.check_bounds(engine)
    check_whole(bench, engine)


@rule("S2-BOUND-2")
@pytest.mark.parametrize("burst_ms", [0, 30, 1000])
def test_S2_BOUND_2_with_another_burst(bench, burst_ms):
    engine = bench.engine(rates={"A": 25}, burst_ns=burst_ms * MS)
    for i in range(5):
        engine.add(f"a{i}", user="A", max_tokens=200)
    engine.run_for(3 * SECOND)
    bench.check_bounds(engine)
    seen = len(engine.history.dispatches("A"))
    assert seen >= 40, f"the test wants a busy user, got {seen} tokens"


@rule("S2-CHILDREN-2")
def test_S2_CHILDREN_2(bench):
    engine = bench.engine(rates={"A": 20})
    ids = engine.add("a", user="A", n=4, seed=1, max_tokens=30)
    engine.run_for(2 * SECOND)
    check_turns(bench, "A", [engine.requests[i] for i in ids])
    # One choice goes away while it is throttled.
    engine.abort(ids[2])
    drain(bench, engine)
    bench.check_bounds(engine)
    check_whole(bench, engine)
    held = engine.leaks()
    bench.check(not held, user="A", at="after the last child", seen=held, promised="nothing held")


@rule("S2-ANONYMOUS-2")
def test_S2_ANONYMOUS_2(bench):
    """No identity, or one that is none: a default rate of 10 for all of them together."""
    engine = bench.engine(default_rate=10)
    for i, user in enumerate([None, "", 7, ["A"], "x" * 300, "a\nb", None, {"a": 1}]):
        engine.add(f"r{i}", user=user, max_tokens=12)
    engine.run_for(3 * SECOND)
    nobody = [log for log in engine.requests.values() if log.user not in ("named",)]
    instants = sorted(at for log in nobody for at in log.dispatch_ns)
    most = bench.backend.bound

    def bound(width):
        return most(width, bench.rate(engine, None), BURST_NS)

    check_windows(bench, "anonymous", instants, bound, engine.clock.start_ns)
    bench.check(
        len(instants) >= 20,
        user="anonymous",
        at="3 s",
        seen=f"{len(instants)} tokens",
        promised="about 30 at 10 tokens/s",
    )


@rule("S2-FORGET-2")
@pytest.mark.parametrize("how", ["finish", "abort", "in-flight", "preempt"])
def test_S2_FORGET_2(bench, how):
    """A user comes and goes, sometimes for longer than it takes to be forgotten."""
    engine = bench.engine(rates={"A": 5})
    draw = random.Random(how)
    for n in range(60):
        names = [f"a{n}-{i}" for i in range(3)]
        for name in names:
            engine.add(name, user="A", prompt=2, max_tokens=1 if how == "finish" else 9)
        engine.run(draw.randrange(1, 4), draw.choice([0, 5, 30]) * MS)
        if how == "preempt":
            engine.reset_prefix_cache()
            engine.step(0)
        engine.abort(*[i for i in names if not engine.requests[i].finished], in_flight=n % 2 > 0)
        engine.step(draw.choice([0, 10, 60, 1500]) * MS)
    bench.check_bounds(engine)


@rule("S2-CLOCK-2")
@pytest.mark.parametrize("jump_s", [-7, -0.2, 0.3, 3600])
def test_S2_CLOCK_2(bench, jump_s):
    """Five jumps of the clock, back or forth; windows are judged in time that really passed."""
    engine = bench.engine(rates={"A": 20}, spy=True)
    for i in range(3):
        engine.add(f"a{i}", user="A", max_tokens=60)
    passed, tokens, since = 0, [], 0

    def check():
        check_windows(
            bench,
            "A",
            tokens[since:],
            lambda width: bench.backend.bound(width, bench.rate(engine, "A"), BURST_NS),
            0,
        )

    for n in range(300):
        if n % 50 == 49:
            engine.clock.jump(int(jump_s * SECOND))
            if jump_s > 0:
                check()
                since = len(tokens)
        step = engine.step()
        tokens += [passed] * len(step.sampled)
        passed += engine.step_ns
    check()
    asked = [call for call in bench.calls(engine) if call.now_ns is not None]
    for before, after in pairwise(asked):
        bench.check(
            before.now_ns <= after.now_ns,
            user="A",
            at=f"jumps of {jump_s} s",
            seen=f"the limiter was shown an instant {ms(before.now_ns - after.now_ns)} back",
            promised="instants that never decrease",
        )
    drain(bench, engine)
    check_whole(bench, engine)
    # Frozen users would need as long again as the clock went back.
    least = int(20 * passed / SECOND) - 8
    bench.check(
        len(tokens) >= least or jump_s > 0,
        user="A",
        at=f"{ms(passed)} that really passed",
        seen=f"{len(tokens)} tokens",
        promised=f"at least {least}",
    )


@rule("S2-ENGINE-PAUSE-2")
@pytest.mark.parametrize("new_only", [False, True], ids=["all", "new-only"])
def test_S2_ENGINE_PAUSE_2(bench, new_only):
    engine = bench.engine(rates={"A": 20})
    for i in range(4):
        engine.add(f"a{i}", user="A", max_tokens=40)
    for pause_ms in (200, 5000):
        engine.run_for(SECOND)
        engine.pause(new_only=new_only)
        engine.add(f"late-{pause_ms}", user="A", max_tokens=4)
        engine.run_for(pause_ms * MS)
        engine.resume()
        before = len(engine.history.dispatches("A"))
        engine.run(4, 0)
        at_once = len(engine.history.dispatches("A")) - before
        bench.check(
            at_once <= bench.full(20),
            user="A",
            at=f"resumed after {pause_ms} ms",
            seen=f"{at_once} tokens at once",
            promised=f"at most {bench.full(20)}",
        )
    drain(bench, engine)
    bench.check_bounds(engine)
