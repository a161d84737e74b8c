"""S4: others go on as if the limited user were not there: places, queue, turns in a step."""

import sys
from statistics import mean

import pytest

from conformance.level2.bench import MS
from conformance.level2.verdicts import check_ended, check_whole, drain
from conformance.rules import rule

NEVER = "1/1000000"


@rule("S4-BESIDE-2")
@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "whole"])
def test_S4_BESIDE_2(bench, chunked):
    """Beside 12 streams of a limited user, an unlimited one is in every step."""
    engine = bench.engine(
        rates={"A": 10},
        max_num_seqs=16,
        chunked_prefill=chunked,
        max_num_batched_tokens=256 if not chunked else 64,
    )
    for i in range(12):
        engine.add(f"a{i}", user="A", prompt=30, max_tokens=20)
    engine.run(5)
    for i in range(3):
        engine.add(f"b{i}", user="B", prompt=4, max_tokens=30)
    steps = engine.run(31)
    for i in range(3):
        served = [f"b{i}" in step.sampled for step in steps]
        first = served.index(True) if True in served else len(steps)
        missed = served[first : first + 30].count(False)
        bench.check(
            first <= 1 and missed == 0,
            user="B",
            at=f"31 steps, request b{i}",
            seen=f"first token in step {first}, then {missed} steps without one",
            promised="first token in step 0 or 1, then one in each step",
        )


@rule("S4-BESIDE-2")
def test_S4_BESIDE_2_a_flood_of_short_requests(bench):
    """Requests of one token come and go beside a throttled user: places count work, not names."""
    engine = bench.engine(rates={"A": 10}, max_num_seqs=8, max_num_active_seqs=4)
    for i in range(6):
        engine.add(f"a{i}", user="A", max_tokens=30)
    engine.run(10)
    serial = 0
    for _ in range(60):
        for _ in range(4):
            engine.add(f"b{serial}", user="B", prompt=3, max_tokens=1)
            serial += 1
        engine.step()
    done = len(engine.history.dispatches("B"))
    engine.run(20)
    # 8 places less 6 held leave 2; a request holds one until its token is handled.
    least = 60 * 2 // bench.depth
    bench.check(
        done >= least,
        user="B",
        at="60 steps",
        seen=f"{done} requests of one token served",
        promised=f"at least {least}, two places are free",
    )
    drain(bench, engine)
    check_whole(bench, engine)


_HEADS = {
    "new": {"prompt": 8},
    "one-token": {"prompt": 1},
    "long": {"prompt": 60},
    "cached": {"prompt": "cached"},
}


@rule("S4-HEAD-2")
@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "whole"])
@pytest.mark.parametrize("resident", [True, False], ids=["beside-its-stream", "alone"])
@pytest.mark.parametrize("head", [*_HEADS, "preempted"])
def test_S4_HEAD_2(bench, head, chunked, resident):
    """Six requests of a user out of quota arrive, then one of another user."""
    engine = bench.engine(
        rates={"A": NEVER}, chunked_prefill=chunked, max_num_batched_tokens=128, max_num_seqs=8
    )
    known = engine.model.prompt(16, "known")
    engine.add("first", user="free", prompt=known, max_tokens=1)
    engine.run(3, 0)
    bench.exhaust(engine, "A", max_tokens=60)
    if not resident:
        engine.abort("endless-A")
    prompt = {**_HEADS, "preempted": {"prompt": 8}}[head]["prompt"]
    for i in range(6):
        mine = [*known, 40 + i] if prompt == "cached" else prompt
        engine.add(f"a{i}", user="A", prompt=mine, max_tokens=4)
    if head == "preempted":
        engine.run(2)
        engine.reset_prefix_cache()
    engine.add("b", user="B", prompt=5, max_tokens=4)
    # Scheduled at once; where all places are taken, a throttled one has given its up by then.
    step = engine.step()
    if "b" not in step.scheduled:
        step = engine.step()
    bench.check(
        "b" in step.sampled,
        user="B",
        at=f"behind 6 requests ({head}) of a user out of quota",
        seen=f"not admitted by step {step.index}",
        promised="admitted and served at once",
    )


@rule("S4-QUEUE-2")
def test_S4_QUEUE_2(bench):
    """Python lines in schedule() with 100 and with 10,000 queued requests; B is served in each."""
    engine = bench.engine(rates={"A": NEVER}, max_num_seqs=8, num_blocks=64, check_kv=False)
    bench.exhaust(engine, "A")
    engine.add("b", user="B", max_tokens=400)
    lines = {}
    for queued in (100, 10_000):
        for n in range(len(engine.requests), queued):
            engine.add(f"a{n}", user="A", prompt=2, max_tokens=2)
        engine.run(4)
        newcomer = f"late{queued}"
        engine.add(newcomer, user="C", prompt=3, max_tokens=2)
        step, lines[queued] = _count_lines(engine)
        bench.check(
            newcomer in step.sampled and "b" in step.sampled,
            user="C",
            at=f"behind {queued} requests of a user out of quota",
            seen=f"served: {list(step.sampled)}",
            promised=f"{newcomer} and b at once",
        )
        # Once more, with nobody new.
        engine.run(2)
        lines[queued] = max(lines[queued], _count_lines(engine)[1])
    most = lines[100] * 1.5
    bench.check(
        lines[10_000] <= most,
        user="B",
        at="schedule() with 10,000 requests queued",
        seen=f"{lines[10_000]} lines of Python run",
        promised=f"at most {most:.0f}; with 100 queued it is {lines[100]}",
    )
    bench.trial.figure(f"{lines[100]} lines with 100 queued, {lines[10_000]} with 10,000")


def _count_lines(engine):
    schedule, count = engine.scheduler.schedule, 0

    def local(frame, event, arg):
        nonlocal count
        count += event == "line"
        return local

    def traced(*args):
        before = sys.gettrace()
        sys.settrace(lambda frame, event, arg: local)
        try:
            return schedule(*args)
        finally:
            sys.settrace(before)

    engine.scheduler.schedule = traced
    step = engine.step()
    engine.scheduler.schedule = schedule
    return step, count


@rule("S4-CAP-2")
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_S4_CAP_2(bench, policy):
    """8 throttled residents, 6 requests with quota, an active cap of 4."""
    engine = bench.engine(rates={"A": NEVER}, max_num_seqs=16, max_num_active_seqs=4, policy=policy)
    for i in range(8):
        engine.add(f"a{i}", user="A", prompt=4, max_tokens=9)
    engine.run(6)
    held = engine.scheduler.get_request_counts()[0]
    assert held == 8, f"the test wants 8 residents, got {held}"
    for i in range(6):
        engine.add(f"b{i}", user="B", prompt=4, max_tokens=30)
    engine.step()
    for step in engine.run(20):
        served = len(step.sampled)
        bench.check(
            served == 4 and step.batch_size <= 4,
            user="B",
            at=f"step {step.index}, cap 4",
            seen=f"{served} requests with quota in a batch of {step.batch_size}",
            promised="4, and 4 in all",
        )


@rule("S4-CAP-2")
def test_S4_CAP_2_is_never_exceeded(bench):
    """Throttled residents get their quota back all at once: still at most 3 in a step."""
    engine = bench.engine(default_rate=20, max_num_seqs=12, max_num_active_seqs=3)
    for i in range(12):
        engine.add(f"u{i}", user=f"u{i % 5}", prompt=1 + i, max_tokens=30)
    most = 0
    for n in range(300):
        step = engine.step([0, 10, 300][n % 3] * MS)
        most = max(most, step.batch_size)
        bench.check(
            step.batch_size <= 3,
            at=f"step {step.index}",
            seen=f"{step.batch_size} requests in the step",
            promised="at most 3, the active cap",
        )
    assert most == 3


@rule("S4-PLACES-2")
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "whole"])
def test_S4_PLACES_2(bench, policy, chunked):
    """A user fills all places with quota, is out of it, and floods on; others arrive one by one."""
    engine = bench.engine(
        rates={"A": 10},
        max_num_seqs=8,
        policy=policy,
        chunked_prefill=chunked,
        max_num_batched_tokens=128,
    )
    for i in range(40):
        engine.add(f"a{i}", user="A", prompt=4, max_tokens=40)
    engine.run_for(3_000 * MS)
    for i, user in enumerate("BCDEF"):
        engine.add(user, user=user, prompt=4, max_tokens=60)
        for i in range(5):
            engine.add(f"more-{user}{i}", user="A", prompt=4, max_tokens=40)
        steps = engine.run(2)
        waited = next((n for n, step in enumerate(steps) if user in step.sampled), None)
        bench.check(
            waited is not None and waited <= 1,
            user=user,
            at="2 steps after it arrives in a house full of a throttled user",
            seen="no place" if waited is None else f"a place after {waited + 1} steps",
            promised="a place in the step after at the latest",
        )
    engine.run(50)
    for user in "BCDEF":
        seen = len(engine.requests[user].dispatch_ns)
        bench.check(
            seen >= 49,
            user=user,
            at="50 further steps",
            seen=f"{seen} tokens",
            promised="one in each step",
        )
    # And the flood goes on at its pace.
    got = len(engine.history.dispatches("A"))
    engine.run_for(2_000 * MS)
    bench.check(
        len(engine.history.dispatches("A")) - got >= 15,
        user="A",
        at="2 s later",
        seen=f"{len(engine.history.dispatches('A')) - got} tokens",
        promised="at least 15 of 20",
    )


@rule("S4-ALONE-2")
def test_S4_ALONE_2(bench):
    """An interactive user's requests, alone and beside 30 throttled background streams."""

    def run(background):
        engine = bench.engine(
            rates={"background": 20}, max_num_seqs=40, max_num_active_seqs=8, num_blocks=1024
        )
        for i in range(background):
            engine.add(f"bg{i}", user="background", prompt=12, max_tokens=300)
        engine.run(50)
        firsts, gaps = [], []
        for n in range(20):
            name = f"chat{n}"
            engine.add(name, user="interactive", prompt=20, max_tokens=12)
            engine.run(15)
            log = engine.requests[name]
            if not log.dispatch_ns:
                return None, None
            firsts.append((log.dispatch_ns[0] - log.arrival_ns) / engine.step_ns + 1)
            gaps.append((log.dispatch_ns[-1] - log.dispatch_ns[0]) / engine.step_ns / 11)
        return mean(firsts), mean(gaps)

    (first, gap), (first_alone, gap_alone) = run(30), run(0)
    for what, seen, alone in (
        ("first token", first, first_alone),
        ("gap between tokens", gap, gap_alone),
    ):
        bench.check(
            seen is not None and seen <= 1.05 * alone,
            user="interactive",
            at=f"{what}, beside 30 throttled streams",
            seen="none" if seen is None else f"{seen:.2f} steps in mean",
            promised=f"at most {1.05 * alone:.2f}, alone it is {alone:.2f}",
        )
    bench.trial.figure(f"first token {first:.2f}, gap {gap:.2f} steps, as alone")


@rule("S4-LORA-2")
@pytest.mark.parametrize("throttled", [1, 3])
def test_S4_LORA_2(bench, throttled):
    """One adapter slot; its holders are throttled when a user with another adapter arrives."""
    engine = bench.engine(rates={"A": 10}, lora_slots=1, max_num_seqs=8)
    for i in range(throttled):
        engine.add(f"a{i}", user="A", prompt=4, max_tokens=8, lora=1)
    engine.run(3)
    engine.add("b", user="B", prompt=4, max_tokens=20, lora=2)
    engine.add("plain", user="B", prompt=4, max_tokens=20)
    first = next((n for n, step in enumerate(engine.run(20)) if "b" in step.sampled), None)
    # In steps in which its holder has quota the slot is taken: 20 steps hold two of those.
    bench.check(
        first is not None and first <= 5,
        user="B",
        at="20 steps after a request for another adapter",
        seen="no token" if first is None else f"first token in step {first}",
        promised="one within 5 steps",
    )
    drain(bench, engine, 3000)
    check_whole(bench, engine)
    check_ended(bench, engine)
