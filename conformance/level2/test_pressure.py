"""S4: who gives way when blocks run out."""

import random

import pytest

from conformance.level2.bench import MS
from conformance.level2.verdicts import check_ended, check_whole, drain
from conformance.rules import rule

NEVER = "1/1000000"


@rule("S4-VICTIM-2")
def test_S4_VICTIM_2(bench):
    """A throttled resident came first; stock would take the last that came, who is served."""
    engine = bench.engine(rates={"A": NEVER}, num_blocks=12, max_model_len=48, prefix_caching=False)
    bench.exhaust(engine, "A", prompt=14, max_tokens=20)
    for i in range(2):
        engine.add(f"b{i}", user="B", prompt=9, max_tokens=16, ignore_eos=True)
    victims = []
    for _ in range(30):
        step = engine.step()
        victims += step.preempted
        if "endless-A" in victims:
            break
        bench.check(
            not victims,
            user="B",
            at=f"step {step.index}, no blocks left",
            seen=f"{victims} preempted, served in this step",
            promised="endless-A, which is throttled",
        )
    bench.check(
        victims == ["endless-A"],
        user="B",
        at="30 steps",
        seen=f"{victims} preempted",
        promised="endless-A",
    )


@rule("S4-VICTIM-PRIORITY-2")
@pytest.mark.parametrize("throttled", [0, 1, 2])
def test_S4_VICTIM_PRIORITY_2(bench, throttled):
    """Served streams of priority 1 need blocks; a throttled one is of priority 0, 1 or 2."""
    engine = bench.engine(
        rates={"A": NEVER},
        policy="priority",
        num_blocks=12,
        max_model_len=48,
        prefix_caching=False,
    )
    bench.exhaust(engine, "A", prompt=14, max_tokens=20, priority=throttled)
    for i in range(2):
        engine.add(f"b{i}", user="B", prompt=9, max_tokens=16, priority=1, ignore_eos=True)
    for _ in range(30):
        step = engine.step()
        if step.preempted:
            break
    due = ("b1",) if throttled == 0 else ("endless-A",)
    bench.check(
        step.preempted == due,
        user="B",
        at=f"step {step.index}, no blocks left for streams of priority 1",
        seen=f"{step.preempted} preempted",
        promised=f"{due}, with a throttled stream of priority {throttled}",
    )


@rule("S4-KV-2")
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize(("prompt", "victims"), [(6, 1), (14, 1), (26, 2)])
def test_S4_KV_2(bench, policy, prompt, victims):
    """Four throttled streams hold all 16 blocks; another user's prompt needs 2, 4 or 7 of them."""
    engine = bench.engine(
        rates={"A": NEVER},
        policy=policy,
        num_blocks=16,
        max_model_len=48,
        prefix_caching=False,
    )
    for i in range(4):
        engine.add(f"a{i}", user="A", prompt=16, max_tokens=9)
    engine.run(6)
    assert engine.free_blocks == 0
    engine.add("b", user="B", prompt=prompt, max_tokens=2, ignore_eos=True)
    steps = engine.run(5)
    preempted = [name for step in steps for name in step.preempted]
    bench.check(
        any("b" in step.sampled for step in steps),
        user="B",
        at="5 steps",
        seen="no token",
        promised="served, throttled requests hold its blocks",
    )
    bench.check(
        len(preempted) == victims,
        user="A",
        at=f"a prompt of {prompt} in blocks of 4",
        seen=f"{preempted} preempted",
        promised=f"{victims}, as many as needed",
    )


@rule("S4-KV-2")
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_S4_KV_2_held_by_who_was_let_in_again(bench, policy):
    """One token in 2 s lets one of four preempted streams in again, each of four chunks.

    Let in on a token that comes back with each chunk, all four would hold 56 of 58 blocks.
    """
    engine = bench.engine(
        rates={"A": "1/2"},
        policy=policy,
        num_blocks=58,
        max_model_len=232,
        max_num_seqs=16,
        max_num_batched_tokens=64,
        long_prefill_token_threshold=16,
        prefix_caching=False,
    )
    for i in range(4):
        engine.add(f"a{i}", user="A", prompt=54, max_tokens=20, ignore_eos=True)
    engine.run(30)
    assert engine.reset_prefix_cache()
    assert any(engine.step().resumed for _ in range(1000)), "nobody was let in again in 10 s"
    engine.run(20)
    for user in ("B", "C"):
        engine.add(user, user=user, prompt=36, max_tokens=60, ignore_eos=True)
    steps = engine.run(5)
    for user in ("B", "C"):
        bench.check(
            any(user in step.sampled for step in steps),
            user=user,
            at="5 steps, 9 blocks wanted",
            seen="no token",
            promised="served, requests that wait for quota hold its blocks",
        )


@rule("S4-KV-2")
def test_S4_KV_2_none_of_better_priority(bench):
    """The throttled holders are of better priority than who needs the blocks: it waits."""
    engine = bench.engine(
        rates={"A": NEVER}, policy="priority", num_blocks=16, max_model_len=48, prefix_caching=False
    )
    for i in range(4):
        engine.add(f"a{i}", user="A", prompt=16, max_tokens=9, priority=0)
    engine.run(6)
    engine.add("b", user="B", prompt=6, max_tokens=2, priority=1)
    preempted = [name for step in engine.run(5) for name in step.preempted]
    bench.check(
        not preempted,
        user="A",
        at="5 steps",
        seen=f"{preempted} preempted, of priority 0, for priority 1",
        promised="none of better priority",
    )


@rule("S4-KV-2")
def test_S4_KV_2_no_empty_step_while_work_could_run(bench):
    """A decoding stream of another user needs its next block."""
    engine = bench.engine(rates={"A": NEVER}, num_blocks=16, max_model_len=60, prefix_caching=False)
    engine.add("b", user="B", prompt=4, max_tokens=50, ignore_eos=True)
    engine.step()
    for i in range(3):
        engine.add(f"a{i}", user="A", prompt=17, max_tokens=9)
    steps = engine.run(49)
    missed = [step.index for step in steps if "b" not in step.sampled]
    bench.check(
        not missed,
        user="B",
        at=f"steps {missed[:5]}",
        seen=f"{len(missed)} steps without a token",
        promised="a token in each step, throttled holders give way",
    )


@rule("S4-THRASH-2")
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("prefix_caching", [True, False])
def test_S4_THRASH_2(bench, policy, prefix_caching):
    """A slow user's streams and busy streams of others in too few blocks, for 600 steps."""
    engine = bench.engine(
        rates={"A": 5},
        policy=policy,
        num_blocks=20,
        max_model_len=60,
        prefix_caching=prefix_caching,
        max_num_seqs=8,
    )
    draw = random.Random(7)
    for i in range(4):
        engine.add(f"a{i}", user="A", prompt=15, max_tokens=30)
    # By stream: tokens it had when it was admitted again, and whether it is out.
    resumed, out = {}, {}
    oracle = bench.oracle(engine)
    serial = preemptions = 0
    for _ in range(600):
        busy = sum(log.user == "B" and not log.finished for log in engine.requests.values())
        if busy < 2 and draw.random() < 0.5:
            engine.add(f"b{serial}", user="B", prompt=draw.randrange(8, 30), max_tokens=20)
            serial += 1
        now = engine.clock()
        quota = oracle.available("A", now)
        step = engine.step(draw.choice([5, 10, 20]) * MS)
        for _ in [name for name in step.sampled if name[0] == "a"]:
            oracle.try_take("A", now)
        for name in step.preempted:
            if name[0] != "a":
                continue
            preemptions += 1
            had = len(engine.requests[name].dispatch_ns) - (name in step.sampled)
            # With quota left it is not throttled, and stock's choice like everybody else's.
            if name in resumed and quota == 0:
                bench.check(
                    had > resumed[name],
                    user="A",
                    at=f"step {step.index}, request {name}",
                    seen="preempted again before its next token",
                    promised="no preemption between a re-admission and its next token",
                )
            out[name] = True
        for name in step.resumed:
            if name[0] != "a":
                continue
            bench.check(
                quota > 0,
                user="A",
                at=f"step {step.index}, request {name}",
                seen="admitted again out of quota",
                promised="out until its user has quota",
            )
            out[name] = False
            resumed[name] = len(engine.requests[name].dispatch_ns) - (name in step.sampled)
    tokens = len(engine.history.dispatches("A"))
    assert preemptions, "the test wants preempted streams"
    bench.check(
        preemptions <= tokens + 4,
        user="A",
        at="600 steps",
        seen=f"{preemptions} preemptions for {tokens} tokens",
        promised="at most one a re-admission, and each of those brings a token",
    )
    bench.trial.figure(f"{preemptions} preemptions in {tokens} tokens")
    drain(bench, engine)
    check_whole(bench, engine)
    check_ended(bench, engine)
