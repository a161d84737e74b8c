"""Let in again after a preemption: it keeps its place until its next token, nobody else does.

A place kept is memory that a user with quota cannot have, so no more are kept than the user had
tokens for.
"""

from __future__ import annotations

import random

import pytest

from conformance.contracts import GCRA
from conformance.engine import ScriptedEngine
from sched_adapter.tests.pressure.again import Again
from sched_adapter.tests.pressure.house import (
    MS,
    check_books,
    check_whole,
    first_step,
    house,
    stock,
)

HOW = ["all were preempted at once", "a long prompt took their blocks"]


def thrown_out(depth: int, how: str, policy: str = "fcfs") -> tuple[ScriptedEngine, Again]:
    """Four streams of a user with a token in 2 s, out, and the first is just let in again.

    Each has 14 blocks of 58 to compute again, in four chunks.
    """
    engine = house(
        depth,
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
    if how == HOW[0]:
        assert engine.reset_prefix_cache()
    else:
        engine.add("long", user="L", prompt=220, max_tokens=3, ignore_eos=True)
    engine.run(40)
    assert engine.free_blocks == 58
    again = Again(engine, GCRA, "A")
    for _ in range(200):
        if again.step().resumed:
            return engine, again
    pytest.fail("nobody was let in again in 2 s")


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_users_with_quota_get_their_blocks_at_once(depth: int, policy: str, how: str) -> None:
    """Who was let in again and waits for quota since holds up nobody that has it."""
    engine, again = thrown_out(depth, how, policy)
    again.run(20)  # the first has its token now, and the user waits 1.8 s for the next one
    assert engine.scheduler.turns.users["A"].ready_ns is not None
    # 18 blocks for two, in three chunks each; A had the token for one stream.
    for user in ("B", "C"):
        engine.add(user, user=user, prompt=36, max_tokens=60, ignore_eos=True)
    again.run(100)
    waited = {user: first_step(engine, user) for user in ("B", "C")}
    print(f"steps to the first token: {waited}")
    assert all(steps is not None and steps < 5 for steps in waited.values()), waited
    assert not again.early, again.early
    check_books(engine)
    check_whole(engine)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("later", [0, 1, 2, 3, 4, 6])
def test_it_keeps_its_place_until_its_next_token(depth: int, how: str, later: int) -> None:
    """Whenever others come that need nearly all blocks, also in the middle of its prompt."""
    engine, again = thrown_out(depth, how)
    again.run(later)
    for i in range(3):
        engine.add(f"b{i}", user=f"B{i}", prompt=40, max_tokens=60, ignore_eos=True)
    again.run(600)
    assert again.readmitted["A"] > 1
    assert not again.early, again.early
    check_books(engine)
    check_whole(engine)


@pytest.mark.parametrize("how", HOW)
def test_no_more_are_let_in_again_than_there_are_tokens(depth: int, how: str) -> None:
    """A chunk of a prompt gives its token back; that token lets nobody else in."""
    engine, again = thrown_out(depth, how)
    again.run(600)
    assert again.readmitted["A"] > 1
    assert again.most_owed == 1
    engine.drain(dt_ns=100 * MS)
    check_books(engine)
    check_whole(engine)
    assert not engine.leaks()


def outrun(depth: int, policy: str, level: int, blocks: int, streams: int) -> ScriptedEngine:
    """Let in again, and then its user lost the token that it came back for.

    Beside `streams` of a user with quota, at priority 1, that take a block each every four steps.
    """
    engine = house(
        depth,
        rates={"A": "1/2"},
        policy=policy,
        num_blocks=blocks,
        max_model_len=400,
        max_num_seqs=16,
        max_num_batched_tokens=64,
        long_prefill_token_threshold=4,
        prefix_caching=False,
    )
    engine.add("a", user="A", prompt=46, max_tokens=20, ignore_eos=True, priority=level)
    engine.run(20)
    assert engine.reset_prefix_cache()
    engine.run(100)
    for i in range(streams):
        engine.add(f"h{i}", user="H", prompt=4, max_tokens=390, ignore_eos=True, priority=1)
    for _ in range(100):
        if engine.step().resumed:
            assert engine.scheduler.limiter.try_take("A", engine.clock())
            return engine
    pytest.fail("nobody was let in again in 2 s")


@pytest.mark.parametrize(
    ("policy", "level"), [("fcfs", 0), ("priority", 1), ("priority", 2)], ids=lambda value: value
)
@pytest.mark.parametrize(
    ("blocks", "streams"),
    [(90, 3), (71, 3), (38, 1), (31, 1)],
    ids=["prompt done, three", "in its prompt, three", "prompt done, one", "in its prompt, one"],
)
def test_without_a_token_to_come_it_gives_way_first(
    depth: int, policy: str, level: int, blocks: int, streams: int
) -> None:
    """No stream that is served gives way, itself neither, while one out of quota holds blocks."""
    engine = outrun(depth, policy, level, blocks, streams)
    for _ in range(60):
        step = engine.step()
        if step.preempted:
            break
        assert len([name for name in step.sampled if name[0] == "h"]) == streams
    user = engine.scheduler.turns.users["A"]
    print(f"step {step.index}: {step.preempted}, {engine.scheduler.residents.owed.keys()}")
    assert user.ready_ns is not None, "the test wants a user out of quota"
    assert step.preempted == ("a",)
    assert len([name for name in step.sampled if name[0] == "h"]) == streams
    check_books(engine)
    check_whole(engine)


def test_of_better_priority_it_keeps_its_place(depth: int) -> None:
    """Out of quota or not: the worst priority gives way first."""
    engine = outrun(depth, "priority", 0, 90, 3)
    for _ in range(60):
        step = engine.step()
        if step.preempted:
            break
    assert step.preempted == ("h2",)


def crossing(depth: int, policy: str, streams: int) -> ScriptedEngine:
    """One of a user's streams is let in again, in the middle of its prompt; blocks are short.

    `streams` of a user with quota take a block each every four steps; another of the user's own
    streams is still out.
    """
    engine = house(
        depth,
        rates={"A": "1/2"},
        policy=policy,
        num_blocks=74 if streams == 3 else 32,
        max_model_len=400,
        max_num_seqs=16,
        max_num_batched_tokens=64,
        long_prefill_token_threshold=4,
        prefix_caching=False,
    )
    engine.add("a", user="A", prompt=46, max_tokens=20, ignore_eos=True)
    engine.run(20)
    engine.add("a2", user="A", prompt=46, max_tokens=20, ignore_eos=True)
    engine.run(20)
    assert engine.reset_prefix_cache()
    engine.run(80)
    for i in range(streams):
        engine.add(f"h{i}", user="H", prompt=4, max_tokens=390, ignore_eos=True)
    return engine


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("streams", [1, 3], ids=["it asks itself", "others are behind"])
def test_it_is_kept_while_its_user_is_short(depth: int, policy: str, streams: int) -> None:
    """Its user has one token, for one of two streams, and it is the last that came."""
    engine = crossing(depth, policy, streams)
    again = Again(engine, GCRA, "A")
    for _ in range(150):
        owed = list(again.owed)
        step = again.step()
        if step.preempted:
            break
    print(f"{step.preempted} out, {owed} let in again, free: {engine.free_blocks}")
    assert "a" in owed, "the test wants it in the middle of its prompt"
    assert step.preempted == (f"h{streams - 1}",)
    assert not again.early
    again.run(300)
    assert not again.early, again.early
    check_books(engine)
    check_whole(engine)


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_where_nobody_is_short_the_order_is_that_of_vllm(depth: int, policy: str) -> None:
    """Let in again or not: the same requests give way, in the same steps."""

    def run(engine: ScriptedEngine) -> list[tuple[str, ...]]:
        for i in range(3):
            engine.add(f"h{i}", user="H", prompt=4, max_tokens=60, ignore_eos=True)
        engine.add("a", user="A", prompt=46, max_tokens=20, ignore_eos=True)
        engine.run(20)
        assert engine.reset_prefix_cache()
        return [step.preempted for step in engine.run(150)]

    settings = {
        "policy": policy,
        "num_blocks": 32,
        "max_model_len": 128,
        "long_prefill_token_threshold": 4,
        "prefix_caching": False,
    }
    ours = house(depth, rates={"A": 1000}, **settings)
    seen, due = run(ours), run(stock(depth, **settings))
    assert seen == due
    assert sum(("a" in names) for names in due) > 1, "the test wants it out before its next token"
    check_books(ours)
    check_whole(ours)


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize(
    ("budget", "threshold"), [(64, 0), (64, 4), (8, 0)], ids=["whole", "chunks of 4", "8 a step"]
)
@pytest.mark.parametrize("seed", range(2))
def test_two_slow_users_come_and_go(
    depth: int, policy: str, budget: int, threshold: int, seed: int
) -> None:
    """Six of their streams, and busy ones of others, in blocks for two or three."""
    draw = random.Random(seed)
    engine = house(
        depth,
        rates={"A": 10, "C": 7},
        policy=policy,
        num_blocks=20,
        max_model_len=64,
        max_num_seqs=8,
        max_num_batched_tokens=budget,
        long_prefill_token_threshold=threshold,
        prefix_caching=False,
    )
    for i in range(3):
        engine.add(f"a{i}", user="A", prompt=13, max_tokens=40, ignore_eos=True)
        engine.add(f"c{i}", user="C", prompt=17, max_tokens=40, ignore_eos=True)
    again = Again(engine, GCRA, "A", "C")
    serial = 0
    for _ in range(800):
        if sum(log.user == "B" and not log.finished for log in engine.requests.values()) < 2:
            prompt = draw.randrange(8, 30)
            engine.add(f"b{serial}", user="B", prompt=prompt, max_tokens=15, ignore_eos=True)
            serial += 1
        again.step()
    print(f"{dict(again.readmitted)} let in again, {dict(again.preempted)} preempted")
    assert min(again.readmitted["A"], again.readmitted["C"]) > 20, "the test wants pressure"
    assert not again.early, f"{len(again.early)}: {again.early[:3]}"
    check_books(engine)
    check_whole(engine)


@pytest.mark.parametrize("user", ["A", "B"], ids=["limited", "unlimited"])
def test_a_session_is_let_in_again_once(depth: int, user: str) -> None:
    """Its later turns come without a preemption: nobody owes it a place."""
    engine = house(
        depth,
        rates={"A": 1000},
        max_model_len=200,
        long_prefill_token_threshold=4,
        prefix_caching=False,
    )
    engine.add("beside", user="B", prompt=3, max_tokens=150, ignore_eos=True)
    engine.add("s", user=user, prompt=10, max_tokens=4, resumable=True, ignore_eos=True)
    engine.run(2)
    assert engine.reset_prefix_cache()
    engine.run(25)
    log = engine.requests["s"]
    assert (log.preemptions, len(log.turns)) == (1, 1)
    for turn in (2, 3):
        engine.feed("s", list(range(20)), max_tokens=3)
        seen = []
        for _ in range(3):
            engine.step()
            seen.append(bool(engine.scheduler.residents.owed))
        assert "s" in {request.request_id for request in engine.scheduler.residents.everyone()}
        assert seen == [False] * 3, f"turn {turn}"
        engine.run(22)
        assert len(log.turns) == turn
    assert log.preemptions == 1
    engine.close("s")
    engine.drain()
    check_whole(engine)
