"""Scenarios from the field: public reports of faults, reduced to what would show them here.

Each names its report; each runs sync and async and with every backend.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import Any

import pytest

from conformance.contract import Contract
from conformance.engine import ScriptedEngine
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


def test_a_throttled_user_in_all_places_and_another_arrives(depth: int, backend: Contract) -> None:
    """vllm-project/vllm#53130: B has a token in bounded time, and A goes on afterwards."""
    engine = house(depth, backend, rates={"A": 20}, max_num_seqs=8)
    for i in range(24):
        engine.add(f"a{i}", user="A", prompt=6, max_tokens=5, ignore_eos=True)
    engine.run_for(2 * SECOND)
    assert engine.scheduler.get_request_counts()[0] >= 7
    engine.add("b", user="B", prompt=6, max_tokens=20, ignore_eos=True)
    engine.run(22)
    assert first_step(engine, "b") <= 1
    assert len(engine.requests["b"].dispatch_ns) == 20
    engine.drain()
    assert all(len(log.tokens) == log.max_tokens for log in engine.requests.values())
    check_bounds(engine, backend)
    check_books(engine)
    assert not engine.leaks()


@pytest.mark.parametrize("returning", [False, True], ids=["asleep", "quota is back"])
def test_a_full_house_gives_a_place_at_once(depth: int, backend: Contract, returning: bool) -> None:
    """Also in the step in which the flood has quota again: for one of its residents, not all."""
    engine = house(depth, backend, rates={"flood": 10}, max_num_seqs=8, max_model_len=4096)
    for i in range(20):
        engine.add(f"flood{i}", user="flood", prompt=6, max_tokens=400, ignore_eos=True)
    engine.run(30)
    engine.add("first", user="first", prompt=3, max_tokens=900, ignore_eos=True)
    engine.run(30)
    assert engine.scheduler.get_request_counts()[0] == 8
    flood = engine.scheduler.turns.users["flood"]
    for _ in range(40):
        if flood.ready_ns is not None and (flood.ready_ns <= engine.clock()) == returning:
            break
        engine.step()
    else:
        pytest.fail("the flood's quota never came back between two steps")
    engine.add("late", user="late", prompt=3, max_tokens=30, ignore_eos=True)
    engine.run(40)
    assert first_step(engine, "late") == 0
    assert len(engine.requests["late"].dispatch_ns) == 30
    check_bounds(engine, backend)
    check_books(engine)


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_kv_full_of_throttled_holders(depth: int, backend: Contract, policy: str) -> None:
    """local-inference-lab/vllm#733: no second empty step while work could run."""
    engine = house(
        depth,
        backend,
        rates={"A": "1/10"},
        policy=policy,
        num_blocks=16,
        max_model_len=60,
        prefix_caching=False,
    )
    for i in range(4):
        engine.add(f"a{i}", user="A", prompt=16, max_tokens=9)
    engine.run(6)
    assert engine.free_blocks == 0
    for i in range(3):
        engine.add(f"b{i}", user="B", prompt=9, max_tokens=11, ignore_eos=True)
        steps = engine.run(12)
        served = [bool(step.sampled) for step in steps]
        assert served[:11] == [True] * 11, served
    check_books(engine)
    check_whole(engine)


def test_kv_full_of_prompts_out_of_quota_that_do_not_fit(depth: int, backend: Contract) -> None:
    """Without quota a prompt waits for blocks and preempts nobody; it gives its own to B."""
    engine = house(
        depth,
        backend,
        rates={"A": NEVER},
        num_blocks=16,
        max_model_len=60,
        max_num_batched_tokens=16,
        long_prefill_token_threshold=8,
        prefix_caching=False,
    )
    engine.add("a", user="A", prompt=2, max_tokens=20, ignore_eos=True)
    engine.run(4)
    for i in range(2):
        engine.add(f"a{i}", user="A", prompt=50, max_tokens=9)
    steps = engine.run(20)
    assert not any(step.preempted for step in steps)
    assert engine.free_blocks < 2
    engine.add("b", user="B", prompt=12, max_tokens=11, ignore_eos=True)
    for _ in range(20):
        engine.step()
        assert all(request.status.name == "RUNNING" for request in engine.scheduler.running)
    assert first_step(engine, "b") <= 3
    assert len(engine.requests["b"].dispatch_ns) == 11
    check_books(engine)
    check_whole(engine)


def _who_asks_for_blocks(engine: ScriptedEngine) -> list[str]:
    """Grows by an id whenever blocks are asked for in a step in which somebody is short."""
    asks = []
    allocate = engine.scheduler._allocate_slots

    def noted(request: Any, *args: Any, **kwargs: Any) -> Any:
        asks.append(request.request_id)
        return allocate(request, *args, **kwargs)

    engine.scheduler._allocate_slots = noted
    return asks


@pytest.mark.parametrize("budget", [64, 8], ids=["whole", "in chunks"])
def test_a_throttled_user_is_the_best_victim_again_and_again(
    depth: int, backend: Contract, budget: int
) -> None:
    """vllm-project/vllm#25538: preemptions per token are bounded, and none is re-admitted broke.

    With 8 tokens a step, who comes back computes its tokens over several steps, and is out of
    quota again meanwhile: it keeps its place until its next token. One exception is stock's: in a
    step in which its user has quota and it finds no blocks for itself, it may have to give up.
    """
    engine = house(
        depth,
        backend,
        rates={"A": 10},
        num_blocks=14,
        max_model_len=48,
        max_num_seqs=6,
        max_num_batched_tokens=budget,
        prefix_caching=False,
    )
    for i in range(3):
        engine.add(f"a{i}", user="A", prompt=13, max_tokens=30, ignore_eos=True)
    asks = _who_asks_for_blocks(engine)
    limiter = backend.limiter(None, rates={"A": 10})
    resumed: dict[str, int] = {}
    preempted = readmitted = serial = 0
    for _ in range(1500):
        if sum(log.user == "B" and not log.finished for log in engine.requests.values()) < 2:
            engine.add(f"b{serial}", user="B", prompt=14, max_tokens=15, ignore_eos=True)
            serial += 1
        now, quota = engine.clock(), limiter.available("A", engine.clock())
        asks.clear()  # what was asked for in an earlier step excuses nobody
        step = engine.step()
        served = [name for name in step.sampled if name[0] == "a"]
        assert limiter.try_take_many("A", len(served), now) == len(served)
        for name in step.resumed:
            assert name[0] != "a" or quota, f"{name} is back without quota"
            readmitted += name[0] == "a"
            resumed[name] = len(engine.requests[name].dispatch_ns) - (name in step.sampled)
        for name in step.preempted:
            if name[0] == "a":
                had = len(engine.requests[name].dispatch_ns)
                early = had <= resumed.get(name, -1)
                itself = quota and asks[-1:] == [name]
                assert not early or itself, f"{name} was preempted before its next token"
                preempted += not quota
    tokens = len(engine.history.dispatches("A"))
    print(f"{preempted} preemptions in {tokens} tokens of A beside {serial} requests of B")
    assert tokens > 50
    assert preempted, "the test wants pressure"
    assert preempted <= 3 + readmitted  # once after each admission, of which three are first ones
    assert readmitted <= tokens
    check_bounds(engine, backend)
    check_books(engine)


@pytest.mark.parametrize("slots", [1, 2])
def test_throttled_holders_of_all_adapter_slots(depth: int, backend: Contract, slots: int) -> None:
    """sgl-project/sglang#15129, vllm-project/vllm#16876: no crash, and B gets in."""
    engine = house(
        depth, backend, rates={"A": 10}, lora_slots=slots, max_num_seqs=8, max_model_len=256
    )
    for i in range(4):
        engine.add(f"a{i}", user="A", prompt=4, max_tokens=8, lora=1 + i % slots)
    engine.run(3)
    for n, adapter in enumerate((8, 9)):
        engine.add(f"b{n}", user=f"B{n}", prompt=4, max_tokens=25, lora=adapter, ignore_eos=True)
    steps = engine.run(60)  # quota comes back to A six times meanwhile
    assert all(
        len(
            {
                engine.scheduler.requests[n].lora_request.lora_int_id
                for n in step.scheduled
                if n in engine.scheduler.requests
            }
        )
        <= slots
        for step in steps
    )
    assert first_step(engine, "b0") <= 3
    engine.drain()
    check_bounds(engine, backend)
    check_books(engine)
    check_whole(engine)
    assert not engine.leaks()


def test_an_interactive_user_beside_a_background_one(depth: int, backend: Contract) -> None:
    """vllm-project/vllm#24365: once capped, 30 streams beside cost 5 % at most."""

    def chats(background: int) -> tuple[float, float]:
        engine = house(
            depth,
            backend,
            rates={"background": 50},
            max_num_seqs=40,
            max_num_active_seqs=8,
            num_blocks=2048,
            max_model_len=1024,
        )
        for i in range(background):
            engine.add(f"bg{i}", user="background", prompt=40, max_tokens=900)
        engine.run(100)
        firsts, gaps = [], []
        for n in range(40):
            engine.add(f"chat{n}", user="chat", prompt=150, max_tokens=12, ignore_eos=True)
            engine.run(18, 7 * MS)
            at = engine.requests[f"chat{n}"].dispatch_ns
            firsts.append(at[0] - engine.requests[f"chat{n}"].arrival_ns + 7 * MS)
            gaps += [b - a for a, b in pairwise(at)]
        return median(firsts), median(gaps)

    (first, gap), (first_alone, gap_alone) = chats(30), chats(0)
    print(f"first token {first / MS:.0f} ms of {first_alone / MS:.0f} alone, gap {gap / MS:.0f}")
    assert first <= 1.05 * first_alone
    assert gap <= 1.05 * gap_alone
