"""Who gives way when blocks run out: the choice beside the best of all choices.

Least recomputed tokens, ties to fewer requests, none of a better priority level, never more than
needed. Judged from outside: what each held and had computed before the step.
"""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from conformance.engine import ScriptedEngine
from sched_adapter.tests.pressure.house import NEVER, check_books, check_whole, house

BLOCK = 4


def held(engine: ScriptedEngine, name: str) -> int:
    groups = engine.scheduler.kv_cache_manager.get_blocks(name).blocks
    return sum(block.ref_cnt == 1 for group in groups for block in group)


def best(holders: dict[str, tuple[int, int]], need: int) -> tuple[int, int] | None:
    """(tokens to compute again, requests) of the cheapest set that frees `need` blocks."""
    ways = [
        (sum(holders[name][1] for name in names), size)
        for size in range(1, len(holders) + 1)
        for names in combinations(holders, size)
        if sum(holders[name][0] for name in names) >= need
    ]
    return min(ways, default=None)


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("seed", range(12))
def test_the_choice_is_the_best_one(depth: int, policy: str, seed: int) -> None:
    draw = random.Random(seed)
    blocks = draw.choice([24, 30, 36])
    engine = house(
        depth,
        rates={"A": NEVER},
        policy=policy,
        num_blocks=blocks,
        max_model_len=128,
        max_num_batched_tokens=256,
        max_num_seqs=12,
        prefix_caching=False,
    )
    # Six streams out of quota, with prompts of all lengths, computed up to their last token.
    engine.add("once", user="A", prompt=1, max_tokens=1)
    engine.run(3)
    levels = {}
    room = blocks
    for i in range(6):
        prompt = draw.randrange(2, 4 * (blocks // 5))
        if room < -(-prompt // BLOCK):
            break
        room -= -(-prompt // BLOCK)
        levels[f"a{i}"] = draw.randrange(3) if policy == "priority" else 0
        engine.add(f"a{i}", user="A", prompt=prompt, max_tokens=9, priority=levels[f"a{i}"])
        engine.run(2)
    requests = engine.scheduler.requests
    holders = {
        name: (held(engine, name), requests[name].num_computed_tokens)
        for name in levels
        if held(engine, name)
    }
    assert len(holders) >= 2, "the test wants throttled residents that hold blocks"
    level = draw.randrange(3) if policy == "priority" else 0
    fair = {name: held for name, held in holders.items() if levels[name] >= level}
    most = engine.free_blocks + sum(blocks for blocks, _ in fair.values())
    wanted = draw.randrange(engine.free_blocks + 1, min(blocks, 128 // BLOCK) + 1)
    engine.add("b", user="B", prompt=wanted * BLOCK - 1, max_tokens=1, priority=level)
    due = best(fair, wanted - engine.free_blocks)
    step = engine.step()
    if due is None:
        assert wanted > most
        assert not step.preempted
        assert "b" not in step.scheduled
    else:
        assert all(levels[name] >= level for name in step.preempted)
        seen = sum(holders[name][1] for name in step.preempted), len(step.preempted)
        assert seen == due, (holders, wanted, step.preempted)
        assert "b" in step.sampled
        # The preempted ones stay out: their user has no quota.
        assert not any(step.resumed for step in engine.run(20))
    check_books(engine)
    check_whole(engine)


def test_with_quota_back_they_are_served_in_turn(depth: int) -> None:
    """Preempted for somebody else, and again resident as quota comes, one token each."""
    engine = house(
        depth,
        rates={"A": 10},
        num_blocks=16,
        max_model_len=60,
        max_num_seqs=8,
        prefix_caching=False,
    )
    for i in range(4):
        engine.add(f"a{i}", user="A", prompt=11, max_tokens=8, ignore_eos=True)
    while len(engine.history.dispatches("A")) < 4:
        engine.step()
    engine.add("b", user="B", prompt=40, max_tokens=3, ignore_eos=True)
    steps = engine.run(3)
    gone = [name for step in steps for name in step.preempted]
    assert gone
    order = []
    while engine.busy:
        order += [name for name in engine.step().sampled if name[0] == "a"]
        assert len(engine.history.steps) < 2000
    for name in gone:
        assert name in order[:4], (gone, order)
    assert max(log.preemptions for log in engine.requests.values()) <= 1
    check_books(engine)
    check_whole(engine)
    assert not engine.leaks()
