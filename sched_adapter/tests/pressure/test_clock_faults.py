"""A clock that steps back or jumps ahead, under the real scheduler."""

from __future__ import annotations

import pytest

from conformance.contract import Contract
from conformance.engine import ScriptedEngine
from sched_adapter.tests.pressure.house import BURST_NS, SECOND, check_books, check_whole, house

HOUR = 3600 * SECOND
RATE = 20


def busy_house(depth: int, backend: Contract) -> ScriptedEngine:
    engine = house(
        depth, backend, rates={"A": RATE}, max_model_len=2048, num_blocks=2048, check_kv=False
    )
    for i in range(3):
        engine.add(f"a{i}", user="A", prompt=3, max_tokens=900, ignore_eos=True)
    engine.add("free", user="free", prompt=3, max_tokens=1900, ignore_eos=True)
    engine.run_for(2 * SECOND)
    return engine


@pytest.mark.parametrize("back_ns", [1, SECOND // 2, HOUR, 90 * 24 * HOUR])
def test_a_step_back_loses_the_gap_and_freezes_nobody(
    depth: int, backend: Contract, back_ns: int
) -> None:
    engine = busy_house(depth, backend)
    before = len(engine.history.dispatches("A"))
    engine.clock.jump(-back_ns)
    steps = engine.run_for(3 * SECOND)
    assert all("free" in step.sampled for step in steps)
    got = len(engine.history.dispatches("A")) - before
    # At its pace from the very step on; time lost is at most the step in which it happened.
    assert 3 * RATE - 2 <= got <= 3 * RATE + 2
    assert 0 <= engine.scheduler.output_rate_wait_s() <= 0.050
    check_books(engine)
    check_whole(engine)


@pytest.mark.parametrize("ahead_ns", [SECOND, HOUR, 90 * 24 * HOUR])
def test_a_jump_ahead_mints_no_more_than_a_full_quota(
    depth: int, backend: Contract, ahead_ns: int
) -> None:
    engine = busy_house(depth, backend)
    before = len(engine.history.dispatches("A"))
    engine.clock.jump(ahead_ns)
    steps = engine.run_for(3 * SECOND)
    assert all("free" in step.sampled for step in steps)
    got = len(engine.history.dispatches("A")) - before
    full = backend.bound(0, backend.limiter(RATE).rate_of("A"), BURST_NS)
    assert 3 * RATE - 2 <= got <= 3 * RATE + full
    check_books(engine)
    check_whole(engine)


def test_back_and_forth(depth: int, backend: Contract) -> None:
    """A clock that swings by an hour every half second gives nobody more than its rate."""
    engine = busy_house(depth, backend)
    before, steps = len(engine.history.dispatches("A")), 0
    for n in range(10):
        engine.clock.jump(-HOUR if n % 2 else HOUR)
        steps += len(engine.run(50))
    got = len(engine.history.dispatches("A")) - before
    full = backend.bound(0, backend.limiter(RATE).rate_of("A"), BURST_NS)
    assert 5 * RATE - 10 <= got <= 5 * RATE + 5 * full
    check_books(engine)
