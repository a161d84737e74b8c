"""S5: with synchronous and with asynchronous scheduling alike."""

import random

import pytest

from conformance.engine import ScriptedEngine
from conformance.level2.bench import MS
from conformance.level2.verdicts import check_whole, drain
from conformance.rules import rule


@rule("S5-CLASS-2")
def test_S5_CLASS_2(bench):
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    scheduler = bench.engine(rates={"A": 10}).scheduler
    made = [cls.__name__ for cls in type(scheduler).__mro__]
    is_async = isinstance(scheduler, AsyncScheduler)
    bench.check(
        isinstance(scheduler, Scheduler) and is_async == (bench.depth == 2),
        at="start",
        seen=f"a {type(scheduler).__name__} of {made}",
        promised=("an" if bench.depth == 2 else "no") + " AsyncScheduler",
    )


@rule("S5-DISPATCH-2")
def test_S5_DISPATCH_2(bench):
    """Ledger, limiter calls and answers before and after each `update_from_output`."""
    engine = bench.engine(
        rates={"A": 20, "B": 60}, num_blocks=24, max_model_len=48, prefix_caching=False, spy=True
    )
    update = engine.scheduler.update_from_output

    def watched(*args):
        before = engine.ledger(), len(bench.calls(engine))
        outputs = update(*args)
        after = engine.ledger(), len(bench.calls(engine))
        step = len(engine.history.steps)
        if before[0] is not None:
            # Closing the account of a user who left moves it, and changes no sum.
            paid = [(books.net, _gross(books)) for books in (before[0], after[0])]
            bench.check(
                paid[0] == paid[1],
                at=f"step {step}, update_from_output",
                seen=f"charged net and gross {paid[0]} before, {paid[1]} after",
                promised="no change",
            )
        calls = bench.calls(engine)[before[1] :]
        bench.check(
            not calls,
            user=str(calls[0].user) if calls else "-",
            at=f"step {step}, update_from_output",
            seen=f"{[call.verb for call in calls]} called",
            promised="no call of the limiter",
        )
        return outputs

    engine.scheduler.update_from_output = watched
    draw = random.Random(1)
    for n in range(150):
        if draw.random() < 0.3:
            user = draw.choice("ABC")
            engine.add(f"{user}{n}", user=user, prompt=draw.randrange(1, 16), max_tokens=6)
        engine.step()


def _gross(books):
    every = (books.closed, *books.accounts.values())
    return sum(account.charged for account in every), sum(account.refunded for account in every)


@rule("S5-DISPATCH-2")
def test_S5_DISPATCH_2_at_dispatch(bench):
    """Quota for one token, two streams, one instant: the second waits though no result is in."""
    engine = bench.engine(rates={"A": 5})
    engine.add("a0", user="A", prompt=2, max_tokens=9)
    engine.add("a1", user="A", prompt=2, max_tokens=9)
    seen = [len(engine.step(0).sampled) for _ in range(3)]
    bench.check(
        seen == [1, 0, 0],
        user="A",
        at="three steps at one instant, a full quota of 1",
        seen=f"{seen} tokens",
        promised="[1, 0, 0]",
    )


@rule("S5-DEPTH-2")
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside-throttled"])
def test_S5_DEPTH_2(bench, beside):
    engine = bench.engine(rates={"A": 1000, "other": "1/1000000"})
    if beside:
        bench.exhaust(engine, "other")
    engine.add("a", user="A", prompt=5, max_tokens=40)
    start = len(engine.history.steps)
    for _ in range(200):
        if engine.requests["a"].finished:
            break
        engine.step()
    took = len(engine.history.steps) - start
    bench.check(
        took <= 42,
        user="A",
        at="40 tokens with quota to spare",
        seen=f"{took} steps",
        promised="at most 42",
    )
    bench.trial.figure(f"40 tokens in {took} steps")


@rule("S5-LOOKAHEAD-2")
@pytest.mark.parametrize("at", [0, 4])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside-throttled"])
def test_S5_LOOKAHEAD_2(bench, at, beside):
    """It stops by a stop token: known one step late at depth 2."""
    engine = bench.engine(rates={"A": 1000, "other": "1/1000000"})
    if beside:
        bench.exhaust(engine, "other")
    engine.add("a", user="A", prompt=5, max_tokens=30, stop_at=(at, 9))
    engine.run(12)
    log = engine.requests["a"]
    delivered, dispatched = at + 1, at + bench.depth
    charged = bench.charged(engine) - beside
    seen = f"{charged} charged, {len(log.dispatch_ns)} dispatched, {len(log.tokens)} delivered"
    bench.check(
        (charged, len(log.dispatch_ns), len(log.tokens)) == (dispatched, dispatched, delivered),
        user="A",
        at=f"a stop at token {at}",
        seen=seen,
        promised=f"{dispatched} charged and dispatched, {delivered} delivered",
    )


@rule("S5-PLACEHOLDER-2")
@pytest.mark.parametrize("length", [2, 15, 16, 17, 31, 32, 33])
def test_S5_PLACEHOLDER_2(bench, length):
    """A prompt stopped one short for lack of quota beside a request that decodes."""
    engine = bench.engine(rates={"A": 5}, max_num_batched_tokens=18)
    engine.add("b", user="B", max_tokens=400)
    engine.add("first", user="A", prompt=2, max_tokens=2)
    engine.step(0)
    paid = bench.charged(engine)
    engine.add("a", user="A", prompt=length, max_tokens=3)
    while not engine.requests["a"].finished:
        step = engine.step()
        for name, request in engine.scheduler.requests.items():
            bench.check(
                request.num_output_placeholders >= 0,
                user=str(engine.requests[name].user),
                at=f"step {step.index}, request {name}",
                seen=f"{request.num_output_placeholders} placeholders",
                promised="none below 0",
            )
        if "first" in step.sampled:
            paid += 1
        if "a" in step.sampled:
            paid += 1
        charged = bench.charged(engine)
        bench.check(
            charged == paid,
            user="A",
            at=f"step {step.index}, a prompt of {length} stopped one short",
            seen=f"{charged} charged",
            promised=f"{paid}",
        )
        assert step.index < 500
    check_whole(bench, engine, ["a"])


@rule("S5-SAME-2")
@pytest.mark.parametrize("seed", range(2))
def test_S5_SAME_2(bench, seed):
    """The same arrivals and aborts of nobody, at depth 1 and depth 2."""

    def run(depth):
        engine = ScriptedEngine(
            bench.scheduler, limits, depth=depth, num_blocks=20, max_model_len=60
        )
        draw = random.Random(seed)
        for n in range(80):
            if draw.random() < 0.4:
                user = draw.choice("ABC")
                engine.add(
                    f"{user}{n}",
                    user=user,
                    prompt=draw.randrange(1, 20),
                    max_tokens=draw.randrange(1, 12),
                    eos_at=draw.choice([None, 0, 5]),
                )
            engine.step(draw.choice([1, 10, 50]) * MS)
        engine.step_ns = 50 * MS
        drain(bench, engine)
        return {n: (log.tokens, log.finish_reason) for n, log in engine.requests.items()}

    limits = bench.engine(rates={"A": 15, "B": 90}).limits
    here, there = run(bench.depth), run(3 - bench.depth)
    for name, ended in here.items():
        bench.check(
            ended == there[name],
            user=name[0],
            at=f"request {name}",
            seen=f"{len(ended[0])} tokens ({ended[1]})",
            promised=f"{len(there[name][0])} ({there[name][1]}) as at the other depth",
        )
