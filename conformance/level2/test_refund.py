"""S1: what was charged and not dispatched is given back in the same step, once."""

import pytest

from conformance.rules import rule

NEVER = "1/1000000"

alone_or_not = pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside-throttled"])


def _engine(bench, beside, **options):
    """Few blocks; `beside` a user out of quota who holds none of them."""
    options = {"max_model_len": 40, "prefix_caching": False, **options}
    engine = bench.engine(rates={"A": 30, "other": NEVER}, **options)
    if beside:
        engine.add("gone", user="other", prompt=1, max_tokens=1)
        engine.run(2, 0)
        engine.add("waits", user="other", prompt=1)
    return engine


def _check_refunded(bench, engine, beside, step, what):
    """The books are as if a token that was not dispatched had not been taken."""
    charged = bench.charged(engine) - beside
    due = engine.history.tallies["A"].dispatched
    bench.check(
        charged == due,
        user="A",
        at=f"step {step.index}, {what}",
        seen=f"{charged} charged net of refunds",
        promised=f"{due}, the tokens dispatched",
    )


def _check_quota(bench, engine, what):
    live = [name for name, log in engine.requests.items() if not log.finished and name != "waits"]
    engine.abort(*live)
    engine.step(0)
    bench.check_quota(engine, "A", what)


@rule("S1-ALLOCATE-2")
@alone_or_not
def test_S1_ALLOCATE_2_for_a_new_request(bench, beside):
    engine = _engine(bench, beside, num_blocks=12)
    engine.add("b", user="B", prompt=20, max_tokens=16, ignore_eos=True)
    engine.run(2, 0)
    engine.add("a", user="A", prompt=30)
    for _ in range(6):
        step = engine.step(0)
        assert "a" not in step.scheduled, "the test wants an allocation that fails"
        _check_refunded(bench, engine, beside, step, "no blocks for a new request")
    _check_quota(bench, engine, "allocations that failed")


@rule("S1-ALLOCATE-2")
@alone_or_not
def test_S1_ALLOCATE_2_for_a_running_request(bench, beside):
    """The last in line needs a block and is preempted itself."""
    engine = _engine(bench, beside, num_blocks=8)
    engine.add("b", user="B", prompt=13, max_tokens=9, ignore_eos=True)
    engine.add("a", user="A", prompt=16, max_tokens=9, ignore_eos=True)
    engine.step(0)
    step = engine.step(0)
    assert step.preempted == ("a",)
    _check_refunded(bench, engine, beside, step, "no block for the next token")
    _check_quota(bench, engine, "an allocation that failed")


@rule("S1-EVICT-2")
@alone_or_not
def test_S1_EVICT_2_fcfs(bench, beside):
    """Another one's block costs the last in line its place, before or after it was charged."""
    engine = _engine(bench, beside, num_blocks=8)
    engine.add("b", user="B", prompt=15, max_tokens=9, ignore_eos=True)
    engine.add("a", user="A", prompt=15, max_tokens=9, ignore_eos=True)
    engine.run(2, 0)
    step = engine.step(0)
    assert step.preempted == ("a",)
    _check_refunded(bench, engine, beside, step, "preempted for another's block")
    _check_quota(bench, engine, "a preemption")


@rule("S1-EVICT-2")
@alone_or_not
def test_S1_EVICT_2_priority(bench, beside):
    """Its token is in the step already when one of better priority takes its place."""
    engine = _engine(bench, beside, num_blocks=7, policy="priority")
    engine.add("a", user="A", prompt=10, max_tokens=9, priority=1, ignore_eos=True)
    engine.step(0)
    engine.add("b", user="B", prompt=16, max_tokens=9, priority=0, ignore_eos=True)
    engine.step(0)
    step = engine.step(0)
    assert step.preempted == ("a",)
    assert "b" in step.sampled
    _check_refunded(bench, engine, beside, step, "preempted after it was scheduled")
    _check_quota(bench, engine, "a preemption")
