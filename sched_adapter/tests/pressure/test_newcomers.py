"""A user with quota finds all places taken: it gets one in the very next step."""

from __future__ import annotations

import random

import pytest

from conformance.engine import ScriptedEngine
from sched_adapter.tests.pressure.house import (
    NEVER,
    check_books,
    check_whole,
    first_step,
    house,
)


def full(depth: int, cap: int | None, other: str, *, returning: bool) -> ScriptedEngine:
    """Eight places, all taken, and a flood out of quota holds most of them; `other` sleeps too.

    `returning`: the flood's quota is back in the step that comes next.
    """
    engine = house(
        depth,
        rates={"flood": 10, "other": NEVER},
        max_num_seqs=8,
        max_num_active_seqs=cap,
        max_model_len=4096,
        num_blocks=2048,
    )
    if other == "holds a place":
        engine.add("other", user="other", prompt=3, max_tokens=400, ignore_eos=True)
        engine.run(4)
    for i in range(20):
        engine.add(f"flood{i}", user="flood", prompt=6, max_tokens=900, ignore_eos=True)
    if other == "waits":
        for i in range(3):
            engine.add(f"other{i}", user="other", prompt=3, max_tokens=400, ignore_eos=True)
    engine.run(40)
    # The place that is kept for users with quota goes to one that then holds it.
    engine.add("first", user="first", prompt=3, max_tokens=3000, ignore_eos=True)
    engine.run(20)
    users = engine.scheduler.turns.users
    assert users["other"].ready_ns is not None
    for _ in range(60):
        ready_ns, held = users["flood"].ready_ns, engine.scheduler.get_request_counts()[0]
        if held == 8 and ready_ns is not None and (ready_ns <= engine.clock()) == returning:
            return engine
        engine.step()
    pytest.fail("the house was never full of a flood out of quota")


@pytest.mark.parametrize("other", ["waits", "holds a place"])
@pytest.mark.parametrize("cap", [None, 2], ids=["all places", "two a step"])
@pytest.mark.parametrize("returning", [False, True], ids=["asleep", "quota is back"])
def test_another_user_that_sleeps_costs_it_no_step(
    depth: int, returning: bool, cap: int | None, other: str
) -> None:
    """Also in the step in which the flood has quota again: for one of its residents, not all."""
    engine = full(depth, cap, other, returning=returning)
    engine.add("late", user="late", prompt=3, max_tokens=30, ignore_eos=True)
    engine.run(70)
    assert first_step(engine, "late") == 0
    assert len(engine.requests["late"].dispatch_ns) == 30
    check_books(engine)
    check_whole(engine)


@pytest.mark.parametrize("seed", range(6))
def test_a_free_place_is_dealt_once(seed: int) -> None:
    """Held for two newcomers, it would cost a resident its turn, and bring nobody in."""
    draw = random.Random(seed)
    engine = house(rates={"sleeper": NEVER}, max_num_seqs=6, max_model_len=128, num_blocks=1024)
    engine.add("once", user="sleeper", prompt=1, max_tokens=1)
    engine.run(3)
    engine.add("asleep", user="sleeper", prompt=1, max_tokens=5)
    serial = alone = 0
    for _ in range(300):
        waiting = engine.scheduler.get_request_counts()[1]
        for _ in range(draw.choice([0, 0, 2]) if waiting < 4 else 0):
            user = f"u{draw.randrange(8)}"
            engine.add(f"{user}-{serial}", user=user, prompt=3, max_tokens=draw.randrange(2, 30))
            serial += 1
        before = [request.request_id for request in engine.scheduler.residents.everyone()]
        step = engine.step()
        assert set(before) <= step.sampled.keys(), f"step {step.index}"
        alone += len(before) == 5 and waiting > 2
    assert alone > 5, "the test wants one free place and several who wait"
    check_books(engine)
    check_whole(engine)
