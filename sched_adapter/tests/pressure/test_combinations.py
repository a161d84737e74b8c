"""What a user of vLLM combines with limits: a busy day under each, and every chunk boundary."""

from __future__ import annotations

import random
from typing import Any

import pytest

from conformance.contract import Contract
from conformance.engine import EngineFault, ScriptedEngine
from sched_adapter.tests.pressure.house import (
    MS,
    SECOND,
    check_books,
    check_bounds,
    check_whole,
    first_step,
    house,
    stock,
)

COMBINATIONS: dict[str, dict[str, Any]] = {
    "priority": {"policy": "priority"},
    "prefix caching": {"prefix_caching": True},
    "no prefix caching": {"prefix_caching": False},
    "active cap unset": {"max_num_active_seqs": None},
    "active cap equal": {"max_num_active_seqs": 8},
    "active cap smaller": {"max_num_active_seqs": 3},
    "active cap of one": {"max_num_active_seqs": 1},
    "long prefill threshold": {"long_prefill_token_threshold": 5},
    "whole prompts": {"chunked_prefill": False, "max_num_batched_tokens": 64},
    "adapters": {"lora_slots": 1},
    "adapters and priority": {"lora_slots": 2, "policy": "priority"},
    "threshold, small cap, priority": {
        "long_prefill_token_threshold": 7,
        "max_num_active_seqs": 2,
        "policy": "priority",
    },
}


def day(engine: ScriptedEngine, seed: int) -> None:
    """150 steps of three users with all sorts of requests, some of them aborted."""
    draw = random.Random(seed)
    config = engine.vllm_config
    shared = engine.model.prompt(12, "shared")
    for n in range(150):
        if draw.random() < 0.4:
            user = draw.choice(["slow", "quick", "free"])
            length = draw.choice([1, 3, 4, 5, 8, 17, 30])
            engine.add(
                f"{user}{n}",
                user=user,
                prompt=[*shared, n % 50 + 20] if draw.random() < 0.3 else length,
                max_tokens=draw.choice([1, 3, 8]),
                priority=draw.randrange(3) if config.scheduler_config.policy == "priority" else 0,
                grammar=3 if draw.random() < 0.15 else None,
                lora=draw.choice([0, 1, 2]) if config.lora_config else 0,
            )
        live = [log.id for log in engine.requests.values() if not log.finished]
        if live and draw.random() < 0.05:
            engine.abort(draw.choice(live), in_flight=draw.random() < 0.5)
        engine.step(draw.choice([5, 10, 20]) * MS)


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_a_busy_day(depth: int, backend: Contract, combination: str) -> None:
    settings = {
        "max_num_seqs": 8,
        "num_blocks": 24,
        "max_model_len": 48,
        "max_num_batched_tokens": 24,
        **COMBINATIONS[combination],
    }
    engine = house(depth, backend, rates={"slow": 10, "quick": 60}, **settings)
    day(engine, sorted(COMBINATIONS).index(combination))
    engine.drain(dt_ns=50 * MS)
    check_bounds(engine, backend)
    check_books(engine)
    check_whole(engine)
    assert not engine.leaks()
    assert engine.history.dispatches("slow")


def test_stock_has_a_fault_of_its_own_with_priority_and_prefix_caching(depth: int) -> None:
    """vllm-project/vllm#43569, stock 0.32.0: why the soak does not combine the two.

    A prompt's chunk is scheduled, its blocks enter the prefix cache, the request is evicted in the
    same step, and later finds blocks there that nobody computed. Gone, the soak can have both.
    """
    engine = stock(
        depth,
        policy="priority",
        max_num_batched_tokens=16,
        long_prefill_token_threshold=8,
        max_model_len=48,
        num_blocks=12,
    )
    engine.add("worse", prompt=39, max_tokens=3, priority=2)
    engine.step()
    engine.add("better", prompt=7, max_tokens=3, priority=0)
    with pytest.raises(EngineFault, match="is not its own"):
        engine.run(10)


@pytest.mark.parametrize("threshold", [0, 5])
def test_prompts_at_every_chunk_boundary_with_quota(depth: int, threshold: int) -> None:
    """Chunks of 16 (or 5), blocks of 4: the first token comes as soon as with stock."""
    settings: dict[str, Any] = {
        "max_num_batched_tokens": 16,
        "long_prefill_token_threshold": threshold,
        "prefix_caching": False,
    }
    engine = house(depth, rates={"A": 1000, "other": 2}, **settings)
    bare = stock(depth, **settings)
    for each in (engine, bare):
        for i in range(2):
            each.add(f"other{i}", user="other", prompt=3, max_tokens=500, ignore_eos=True)
        each.run(3)
    for length in range(1, 36):
        name = f"a{length}"
        for each in (engine, bare):
            each.add(name, user="A", prompt=length, max_tokens=3, ignore_eos=True)
            while not each.requests[name].finished:
                each.step()
        assert len(engine.requests[name].dispatch_ns) == 3
        assert first_step(engine, name) <= first_step(bare, name)
    check_books(engine)
    check_whole(engine)


@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "whole"])
def test_prompts_at_every_chunk_boundary_without_quota(
    depth: int, backend: Contract, chunked: bool
) -> None:
    """Out of quota when the prompt arrives: computed up to its last token, sampled when due."""
    engine = house(
        depth,
        backend,
        rates={"A": 4},
        max_num_batched_tokens=16 if chunked else 64,
        max_model_len=64,
        chunked_prefill=chunked,
        prefix_caching=False,
    )
    engine.add("warm", user="A", prompt=1, max_tokens=1)
    engine.drain()
    for length in range(1, 36):
        before = engine.history.dispatches("A")[-1]
        name = f"a{length}"
        engine.add(name, user="A", prompt=length, max_tokens=1)
        while not engine.requests[name].finished:
            engine.step()
            assert engine.clock() - before < SECOND
        (at,) = engine.requests[name].dispatch_ns
        # One token in 250 ms: at the first step at which it is due, whatever the length.
        assert at - before + 100 * MS >= SECOND // 4
        assert at - before <= SECOND // 4 + engine.step_ns
    check_bounds(engine, backend)
    check_books(engine)
    check_whole(engine)
