"""Turns: among a user's streams (S2) and among users (S4)."""

from math import ceil

import pytest

from conformance.level2.bench import BURST_NS, SECOND
from conformance.level2.verdicts import check_turns, ms
from conformance.rules import rule

LONG = {"max_model_len": 4096, "num_blocks": 4096}


@rule("S2-ROTATE-2")
@pytest.mark.parametrize("streams", [2, 4, 7])
def test_S2_ROTATE_2(bench, streams):
    engine = bench.engine(rates={"A": 20}, **LONG)
    for i in range(streams):
        engine.add(f"a{i}", user="A", prompt=3 + 5 * i, max_tokens=400)
    engine.add("b", user="B", max_tokens=300)
    engine.run_for(8 * SECOND)
    check_turns(bench, "A", [engine.requests[f"a{i}"] for i in range(streams)])


@rule("S2-ROTATE-2")
def test_S2_ROTATE_2_as_streams_come_one_by_one(bench):
    engine = bench.engine(rates={"A": 30}, max_num_active_seqs=3)
    for i in range(6):
        engine.add(f"a{i}", user="A", prompt=2 + i, max_tokens=40)
        engine.run(3)
    engine.run_for(5 * SECOND)
    check_turns(bench, "A", [engine.requests[f"a{i}"] for i in range(6)])


@rule("S2-PRIORITY-2")
def test_S2_PRIORITY_2(bench):
    """Two streams of priority 0 and two of 1, with quota for one of them at a time."""
    engine = bench.engine(rates={"A": 12}, policy="priority")
    worse = ["w0", "w1"]
    for name in worse:
        engine.add(name, user="A", max_tokens=40, priority=1)
    engine.run_for(SECOND)
    better = ["b0", "b1"]
    for name in better:
        engine.add(name, user="A", max_tokens=15, priority=0)
    engine.step()
    for step in (engine.step() for _ in range(4000)):
        if any(engine.requests[name].finished for name in better):
            break
        passed = [name for name in better if name not in step.sampled]
        for name in worse:
            bench.check(
                name not in step.sampled or not passed,
                user="A",
                at=f"step {step.index}",
                seen=f"{name} (priority 1) served, {passed} (priority 0) passed over",
                promised="the better priority first",
            )
    check_turns(bench, "A", [engine.requests[name] for name in better])
    for _ in range(2000):
        if not engine.busy:
            break
        engine.step()
    check_turns(bench, "A", [engine.requests[name] for name in worse])


@rule("S2-TURN-2")
@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "whole"])
@pytest.mark.parametrize("rate", [2, 20])
def test_S2_TURN_2(bench, chunked, rate):
    """Four streams arrive where two use up the quota."""
    engine = bench.engine(rates={"A": rate}, chunked_prefill=chunked, max_num_batched_tokens=256)
    for i in range(2):
        engine.add(f"early{i}", user="A", max_tokens=100)
    engine.run_for(SECOND)
    late = [f"late{i}" for i in range(4)]
    for name in late:
        engine.add(name, user="A", prompt=30, max_tokens=20)
    arrived = engine.clock()
    promised = ceil(6 / rate) * SECOND + engine.step_ns
    engine.run_for(promised + SECOND)
    waits = {
        name: log.dispatch_ns[0] - arrived if (log := engine.requests[name]).dispatch_ns else None
        for name in late
    }
    for name, wait in waits.items():
        bench.check(
            wait is not None and wait <= promised,
            user="A",
            at=f"request {name}, 6 streams at {rate} tokens/s",
            seen="no first token" if wait is None else f"first token after {ms(wait)}",
            promised=f"within {ms(promised)}",
        )


@rule("S2-TURN-2")
def test_S2_TURN_2_a_flood_of_short_requests_starves_nobody(bench):
    """One-token requests of the user come without end; its long stream still gets its turns."""
    engine = bench.engine(rates={"A": 20})
    engine.add("long", user="A", max_tokens=300)
    for n in range(400):
        for i in range(2):
            engine.add(f"short{n}-{i}", user="A", prompt=2, max_tokens=1)
        engine.step()
    got = len(engine.requests["long"].dispatch_ns)
    # 8 places: the long stream and 7 short ones that share 80 tokens of these 4 s.
    least = 80 // 8 - 1
    bench.check(
        got >= least,
        user="A",
        at="4 s beside a flood of requests of one token",
        seen=f"{got} tokens for the long stream",
        promised=f"at least {least}, an eighth of the quota",
    )


def _crowd(bench, streams, rate):
    """All streams resident, which takes a moment out of quota, and quota for all in each step."""
    engine = bench.engine(
        default_rate=rate, max_num_seqs=32, max_num_active_seqs=4, step_ns=BURST_NS, **LONG
    )
    for i in range(max(streams.values())):
        for user, count in streams.items():
            if i < count:
                engine.add(f"{user}-{i}", user=user, prompt=2 + i, max_tokens=1000)
    for _ in range(200):
        if engine.scheduler.get_request_counts()[0] == sum(streams.values()):
            break
        engine.step(0)
    else:
        residents, queued = engine.scheduler.get_request_counts()
        bench.broken(
            rule="S4-CAP-2",
            at="200 steps at one instant, all users out of quota",
            seen=f"{residents} residents, {queued} waiting",
            promised="a place for all of them",
        )
    engine.step(20 * SECOND)
    return engine


@rule("S4-TURNS-2")
@pytest.mark.parametrize("streams", [1, 2])
def test_S4_TURNS_2(bench, streams):
    """Ten users of equal demand, a cap of 4, quota for two tokens a step and user."""
    users = [f"u{i}" for i in range(10)]
    engine = _crowd(bench, dict.fromkeys(users, streams), rate=20)
    wave = ceil(len(users) / 4)
    engine.run(wave)
    served = [
        [engine.requests[name].user for name in engine.step().sampled] for _ in range(40 * wave)
    ]
    for user in users:
        waited = longest = 0
        for step in served:
            waited = 0 if user in step else waited + 1
            longest = max(longest, waited + 1)
        bench.check(
            longest <= wave,
            user=user,
            at=f"{len(served)} steps, 10 users with {streams} streams each, cap 4",
            seen=f"served after {longest} steps",
            promised=f"within {wave}",
        )
    worst = 1.0
    for start in range(len(served) - 25 * wave):
        window = served[start : start + 25 * wave]
        tokens = [sum(step.count(user) for step in window) for user in users]
        worst = min(worst, sum(tokens) ** 2 / len(users) / sum(n * n for n in tokens))
    bench.check(
        worst >= 0.99,
        user="all",
        at=f"{25 * wave} steps",
        seen=f"Jain's index {worst:.4f}",
        promised="at least 0.99",
    )
    bench.trial.figure(f"Jain {worst:.4f}")


@rule("S4-TURNS-2")
def test_S4_TURNS_2_users_not_streams(bench):
    """17 streams of one user beside one of another, cap 4: the one is in every step."""
    engine = _crowd(bench, {"A": 17, "B": 1}, rate=100)
    engine.run(8)
    steps = engine.run(60)
    got = sum("B-0" in step.sampled for step in steps)
    bench.check(
        got == 60,
        user="B",
        at="60 steps beside 17 streams of another user, cap 4",
        seen=f"{got} tokens",
        promised="a token in each step: 2 users, 4 places",
    )


@rule("S4-BUDGET-2")
@pytest.mark.parametrize("budget", [16, 48])
def test_S4_BUDGET_2(bench, budget):
    """Long prompts of one user eat the budget; two who decode come back from a lack of quota."""
    rates = {"t": "1/1000000", "d": 25, "e": 40}
    engine = bench.engine(rates=rates, max_num_batched_tokens=budget, **LONG)
    bench.exhaust(engine, "t")
    for user in ("d", "e"):
        engine.add(user, user=user, max_tokens=1000)
    engine.run(20)
    for i in range(3):
        engine.add(f"p{i}", user="p", prompt=40 * budget, max_tokens=4)
    engine.run(2)
    oracle = bench.oracle(engine)
    for user in ("d", "e"):
        for at in engine.history.dispatches(user):
            oracle.try_take(user, at)
    waited = dict.fromkeys(("d", "e", "p"), 0)
    tokens = 0
    for _ in range(60):
        now = engine.clock()
        entitled = {user for user in waited if oracle.available(user, now)}
        step = engine.step()
        tokens += sum(step.scheduled.values())
        served = {engine.requests[name].user for name in step.scheduled}
        for user in waited:
            if user != "p" and user in served:
                oracle.try_take(user, now)
            waited[user] = waited[user] + 1 if user in entitled - served else 0
            bench.check(
                waited[user] < 3,
                user=user,
                at=f"step {step.index}, 3 users with work, {budget} tokens a step",
                seen=f"not served in {waited[user]} steps with quota",
                promised="served within 3 steps",
            )
    bench.check(
        tokens >= 60 * budget - 60,
        user="all",
        at=f"60 steps of {budget} tokens",
        seen=f"{tokens} tokens computed",
        promised="the prompts get what the others leave of the budget",
    )
