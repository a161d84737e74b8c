"""What it costs others that a request was let in again and has a token set aside."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import vllm
from vllm.v1.request import Request

from conformance.contracts import GCRA
from conformance.engine import ScriptedEngine
from conformance.engine.clock import ManualClock
from sched_adapter.tests.pressure.again import Again
from sched_adapter.tests.pressure.house import (
    MS,
    NEVER,
    SECOND,
    check_books,
    check_bounds,
    check_whole,
    first_step,
    house,
)

ROOMY: dict[str, Any] = {
    "num_blocks": 600,
    "max_model_len": 1200,
    "max_num_batched_tokens": 64,
    "long_prefill_token_threshold": 4,
    "prefix_caching": False,
}


def beside(engine: ScriptedEngine) -> None:
    """Two streams of a limited user and one of a user without a limit."""
    for i in range(2):
        engine.add(f"c{i}", user="C", prompt=20, max_tokens=300, ignore_eos=True)
    engine.add("u", user="U", prompt=20, max_tokens=1100, ignore_eos=True)


def until_back(engine: ScriptedEngine, name: str, step: Callable[[], Any]) -> None:
    for _ in range(3000):
        if name in step().resumed:
            return
    pytest.fail(f"{name} was not let in again in 30 s")


@pytest.mark.parametrize("rate", [2, 4])
def test_its_user_may_pause_while_its_prompt_is_computed(depth: int, rate: int) -> None:
    """The price of its place: one token of its user is set aside, and this user saves no second."""
    engine = house(depth, rates={"A": rate, "C": 5}, **ROOMY)
    engine.add("x", user="A", prompt=800, max_tokens=100, ignore_eos=True)
    beside(engine)
    engine.add("a", user="A", prompt=3, max_tokens=300, ignore_eos=True)
    engine.run(300)
    assert engine.reset_prefix_cache()
    before = len(engine.requests["x"].dispatch_ns)
    until_back(engine, "x", engine.step)
    since = engine.clock() - engine.step_ns
    engine.run_for(6 * SECOND)
    next_ns = engine.requests["x"].dispatch_ns[before]
    assert next_ns - since > SECOND  # else there was nothing to pay for
    instants = engine.history.dispatches("A")
    slack = SECOND // rate + engine.step_ns
    assert max(b - a for a, b in pairwise(instants)) <= next_ns - since + slack
    later = [ns for ns in instants if ns >= next_ns]
    assert max(b - a for a, b in pairwise(later)) <= slack
    shares = [sum(ns >= next_ns for ns in engine.requests[i].dispatch_ns) for i in ("x", "a")]
    assert abs(shares[0] - shares[1]) <= 1
    check_books(engine)
    check_bounds(engine, GCRA)


def test_other_users_are_served_as_if_it_were_not_there(depth: int) -> None:
    """While its prompt is computed: a limited user and one without a limit, in every step."""
    alone = house(depth, rates={"C": 5}, **ROOMY)
    beside(alone)
    alone.run(300)
    assert alone.reset_prefix_cache()
    alone.run(600)
    engine = house(
        depth, rates={"A": 2, "C": 5}, clock=ManualClock(start_ns=alone.clock.start_ns), **ROOMY
    )
    engine.add("x", user="A", prompt=800, max_tokens=100, ignore_eos=True)
    beside(engine)
    engine.add("a", user="A", prompt=3, max_tokens=300, ignore_eos=True)
    engine.run(300)
    assert engine.reset_prefix_cache()
    before = len(engine.requests["x"].dispatch_ns)
    engine.run(600)
    assert engine.requests["x"].preemptions == 1
    assert len(engine.requests["x"].dispatch_ns) > before  # its prompt was computed once more
    for user in ("C", "U"):
        assert engine.history.dispatches(user) == alone.history.dispatches(user)


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_a_prompt_without_a_token_does_not_take_the_adapter_slot(depth: int, policy: str) -> None:
    """One slot for adapters, and another stream's seed forbids that its prompt stops one short.

    That stream was seated earlier, and has nothing to compute before its user has a second token.
    In 0.33 whoever runs keeps the slot, scheduled or not: there that stream has the first token.
    """
    settings = {**ROOMY, "policy": policy, "lora_slots": 1}
    engine = house(depth, rates={"A": 2}, **settings)
    engine.add("x", user="A", prompt=20, max_tokens=10, ignore_eos=True, lora=1)
    engine.run(20)
    engine.add("y", user="A", prompt=8, max_tokens=10, ignore_eos=True, lora=2, seed=3)
    for _ in range(300):
        if "y" in engine.step().admitted:
            break
    scheduler = engine.scheduler
    x, y = scheduler.requests["x"], scheduler.requests["y"]
    scheduler._preempt_throttled(x)  # as for somebody who needs its blocks
    until_back(engine, "x", engine.step)
    assert scheduler.residents.everyone() == [y, x]
    kept = vllm.__version__.startswith("0.33.")
    assert (y in scheduler.residents.prefilling) is not kept
    assert len(engine.requests["y"].dispatch_ns) == kept
    assert x in scheduler.residents.owed
    assert any("x" in step.sampled for step in engine.run(10))
    engine.drain()
    check_books(engine)
    check_whole(engine)


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_nobody_is_admitted_where_a_served_one_gave_way(depth: int, policy: str) -> None:
    """As in vLLM, where a preemption closes the waiting queue for the step."""
    engine = house(depth, rates={"A": "1/2"}, policy=policy, **ROOMY)
    for name in ("u0", "u1"):
        engine.add(name, user=name, prompt=30, max_tokens=400, ignore_eos=True)
    for name in ("x", "next"):
        engine.add(name, user="A", prompt=80, max_tokens=10, ignore_eos=True)
    engine.run(40)
    scheduler, pool = engine.scheduler, engine.scheduler.kv_cache_manager.block_pool
    for name in ("next", "x"):  # as for somebody who needs their blocks
        scheduler._preempt_throttled(scheduler.requests[name])
    until_back(engine, "x", engine.step)
    for _ in range(4):
        if scheduler.requests["u0"].num_computed_tokens % 4 == 0:  # its next token needs a block
            break
        engine.step()
    taken = pool.get_new_blocks(pool.get_num_free_blocks())
    engine.add("new", user="N", prompt=2, max_tokens=5, ignore_eos=True)
    step = engine.step()
    assert step.preempted == ("u1",)
    assert {"u0", "x"} <= set(step.scheduled)
    assert not step.admitted
    assert not step.resumed
    assert engine.free_blocks > 10  # there was room
    pool.free_blocks(taken)
    engine.drain(dt_ns=100 * MS)
    check_books(engine)
    check_whole(engine)
    assert not engine.leaks()


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_a_newcomer_does_not_take_its_token(depth: int, policy: str) -> None:
    """A short prompt of its user, and then it is out of quota and gives its place up again."""
    engine = house(
        depth,
        rates={"A": "1/2"},
        policy=policy,
        **{**ROOMY, "num_blocks": 31, "max_model_len": 120},
    )
    engine.add("a", user="A", prompt=46, max_tokens=20, ignore_eos=True)
    engine.run(20)
    assert engine.reset_prefix_cache()
    again = Again(engine, GCRA, "A")
    for i in range(3):
        until_back(engine, "a", again.step)
        engine.add(f"short{i}", user="A", prompt=2, max_tokens=1)
        engine.add(f"h{i}", user=f"H{i}", prompt=80, max_tokens=30, ignore_eos=True)
    again.run(600)
    assert not again.early, again.early


def test_a_user_with_quota_does_not_wait_for_its_prompt(depth: int) -> None:
    """All places are taken, four by parked streams of its user; a third one sleeps with none."""
    engine = house(depth, rates={"A": "1/2", "C": NEVER}, max_num_seqs=8, **ROOMY)
    engine.add("c0", user="C", prompt=3, max_tokens=1, ignore_eos=True)
    engine.run(3)
    engine.add("c1", user="C", prompt=1, max_tokens=10, ignore_eos=True)
    engine.add("b", user="B", prompt=3, max_tokens=890, ignore_eos=True)
    engine.run(3)
    engine.add("x", user="A", prompt=400, max_tokens=50, ignore_eos=True)
    engine.run(150)
    assert engine.reset_prefix_cache()
    engine.run(5)
    for i in range(4):
        engine.add(f"a{i}", user="A", prompt=30, max_tokens=50, ignore_eos=True)
    until_back(engine, "x", engine.step)
    for i in range(2):
        engine.add(f"f{i}", user=f"F{i}", prompt=3, max_tokens=800, ignore_eos=True)
        engine.step()
    assert len(engine.scheduler.residents) == 8
    engine.add("b2", user="B", prompt=3, max_tokens=5, ignore_eos=True)
    engine.run(150)
    steps = first_step(engine, "b2")
    assert steps is not None
    assert steps < 5


def test_many_of_them_are_not_compared_with_each_other(
    depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step over 200 streams of a user without limit, each let in again, costs each once."""
    engine = house(
        depth,
        rates={"A": NEVER},
        max_num_seqs=256,
        **{**ROOMY, "num_blocks": 8000, "max_num_batched_tokens": 1024},
        check_kv=False,
    )
    engine.add("z", user="A", prompt=3, max_tokens=50, ignore_eos=True)
    for i in range(200):
        engine.add(f"u{i}", user="U", prompt=100, max_tokens=50, ignore_eos=True)
    engine.run(8)
    assert engine.reset_prefix_cache()
    engine.run(3)
    assert len(engine.scheduler.residents.owed) == 200
    compared = 0

    def equal(one: Request, other: object) -> bool:
        nonlocal compared
        compared += 1
        return one is other

    settle = engine.scheduler.settlement.settle

    def counted(*args: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(Request, "__eq__", equal)
            return settle(*args)

    engine.scheduler.settlement.settle = counted
    engine.step()
    assert compared < 10 * 200
