"""Others go on as if the limited user were not there; the plain limiter and stock beside it."""

from __future__ import annotations

import random
from math import ceil

import pytest
import vllm

from conformance.contract import Contract
from conformance.engine import ADAPTER
from sched_adapter.tests.pressure import table
from sched_adapter.tests.pressure.crowds import (
    behind_queue,
    beside_flood,
    first_of_own,
    turns,
    worst_jain,
)
from sched_adapter.tests.pressure.house import (
    MS,
    NEVER,
    SECOND,
    check_books,
    check_bounds,
    first_step,
    house,
)
from sched_adapter.tests.pressure.plain import PLAIN


@pytest.mark.parametrize("requests", [40, 400])
def test_a_flood_does_not_fill_the_house(depth: int, backend: Contract, requests: int) -> None:
    seen = beside_flood(depth, requests, ADAPTER, backend)
    assert seen.first_token is not None
    assert seen.first_token <= 1  # at the latest in the step after, a throttled one gone by then
    assert seen.missed == 0
    assert seen.preempted <= 1


@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "whole"])
def test_the_reserve_is_there_at_once_and_then_a_throttled_one_goes(
    depth: int, backend: Contract, chunked: bool
) -> None:
    """A user out of quota and 16 places, of which two are not for it; four others arrive."""
    engine = house(
        depth,
        backend,
        rates={"flood": NEVER},
        max_num_seqs=16,
        chunked_prefill=chunked,
        max_num_batched_tokens=256,
    )
    engine.add("flood", user="flood", prompt=4, max_tokens=90)
    engine.run(3)  # out of quota from here on
    for i in range(40):
        engine.add(f"flood{i}", user="flood", prompt=4, max_tokens=90)
    engine.run(20)
    # Without chunked prefill a prompt cannot be computed up to its last token, so none is.
    held = 14 if chunked else 1
    assert engine.scheduler.get_request_counts()[0] == held
    evicted = 0
    for i in range(4):
        engine.add(f"late{i}", user=f"late{i}", prompt=4, max_tokens=90, ignore_eos=True)
        step = engine.step()
        assert f"late{i}" in step.sampled
        evicted += len(step.preempted)
        assert evicted == max(0, held + i + 1 - 16)


def test_prompts_of_a_user_out_of_quota_come_last(depth: int, backend: Contract) -> None:
    """Somebody's long prompt takes as many steps beside a flood's long prompts as it does alone."""
    first = {}
    for flood in (0, 12):
        engine = house(
            depth,
            backend,
            rates={"flood": NEVER},
            max_num_seqs=16,
            max_num_batched_tokens=32,
            num_blocks=2048,
        )
        engine.add("once", user="flood", prompt=1, max_tokens=2)
        engine.run(2)
        for i in range(flood):
            engine.add(f"flood{i}", user="flood", prompt=400, max_tokens=4)
        engine.run(3)
        engine.add("chat", user="chat", prompt=320, max_tokens=4)
        engine.run(14)
        first[flood] = first_step(engine, "chat")
    assert first == {0: 9, 12: 9}  # ten chunks of 32


CROWDS = [
    ([1] * 5, 1),
    ([1] * 7, 3),
    ([1] * 10, 4),
    ([1, 2, 3, 4, 1, 2, 3, 4, 1, 2], 4),
    ([6, 1, 1], 2),
]


@pytest.mark.parametrize(("streams", "cap"), CROWDS)
def test_users_take_turns(depth: int, backend: Contract, streams: list[int], cap: int) -> None:
    seen = turns(depth, streams, cap, ADAPTER, backend)
    assert seen.jain >= 0.99
    assert seen.wait <= ceil(len(streams) / cap)


def test_the_plain_limiter_would_be_seen(depth: int) -> None:
    """The figures tell a scheduler without turns and places from one with them."""
    assert turns(depth, [1] * 10, 4, PLAIN).jain < 0.5
    assert None in first_of_own(depth, 12, 10, PLAIN)
    # vLLM 0.33 goes on behind a waiting request that may compute nothing; those before it stop.
    stops = not vllm.__version__.startswith("0.33.")
    assert (beside_flood(depth, 40, PLAIN).first_token is None) is stops
    assert (None in behind_queue(depth, 40, PLAIN)) is stops


def test_equal_demand_gets_equal_shares_of_the_token_budget(depth: int, backend: Contract) -> None:
    """Six users with one request after another, prompts of 30; a step holds two of them.

    They are admitted in the order of their arrival, as by stock: no wait is promised, but shares.
    """
    users = [f"u{i}" for i in range(6)]
    engine = house(
        depth,
        backend,
        default_rate=200,
        max_num_seqs=32,
        max_num_batched_tokens=64,
        num_blocks=2048,
        prefix_caching=False,
    )
    served, serial = [], 0
    for n in range(40 * 3 + 20):
        for user in users:
            while sum(log.user == user for log in engine.requests.values() if not log.finished) < 3:
                engine.add(f"{user}-{serial}", user=user, prompt=30, max_tokens=1)
                serial += 1
        step = engine.step(100 * MS)
        if n >= 20:
            served.append([engine.requests[name].user for name in step.sampled])
    assert worst_jain(served, users, 25 * 3) >= 0.99


@pytest.mark.parametrize("throttled", [0, 3])
def test_streams_go_on_beside_prompts_that_fill_the_budget(
    depth: int, backend: Contract, throttled: int
) -> None:
    """Four users decode; the prompts of others, and of a flood, would take every step whole."""
    draw = random.Random(throttled)
    engine = house(
        depth,
        backend,
        default_rate=300,
        rates={"flood": 5},
        max_num_seqs=16,
        max_num_batched_tokens=32,
        num_blocks=2048,
        prefix_caching=False,
    )
    for i in range(4):
        engine.add(f"u{i}", user=f"u{i}", prompt=4, max_tokens=400, ignore_eos=True)
    engine.run(3)
    for n in range(throttled):
        engine.add(f"flood{n}", user="flood", prompt=300, max_tokens=50)
    for n in range(150):
        if n % 2:
            engine.add(f"p{n}", user=f"p{n % 9}", prompt=draw.randrange(20, 200), max_tokens=2)
        step = engine.step()
        missed = [f"u{i}" for i in range(4) if f"u{i}" not in step.sampled]
        assert not missed, (step.index, missed, step.scheduled)


@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "whole"])
@pytest.mark.parametrize(("streams", "rate"), [(6, 2), (12, 10), (14, 20)])
def test_a_users_own_waiting_streams_get_their_turn(
    depth: int, backend: Contract, streams: int, rate: int, chunked: bool
) -> None:
    """As many streams as the user has places: first tokens within streams / rate and a step."""
    waits = first_of_own(depth, streams, rate, ADAPTER, backend, chunked=chunked)
    most = ceil(streams / rate) * SECOND + 10 * MS
    assert all(wait is not None and wait <= most for wait in waits), waits


def test_beyond_its_places_a_stream_starts_when_another_ends(depth: int) -> None:
    """Ten streams of a user, eight places in the house."""
    engine = house(depth, rates={"own": 20}, max_num_seqs=8)
    for i in range(10):
        engine.add(f"s{i}", user="own", prompt=4, max_tokens=10, ignore_eos=True)
    while engine.busy:
        engine.step()
        assert engine.clock.elapsed_ns < 10 * SECOND
    ends = sorted(log.finish_ns for log in engine.requests.values())
    firsts = sorted(log.dispatch_ns[0] for log in engine.requests.values())
    for late, end in zip(firsts[8:], ends, strict=False):
        # When a place comes free: its turn is after those of the seven that run.
        assert late - end <= SECOND * 8 // 20 + 2 * engine.step_ns


def test_ten_thousand_in_the_queue_hold_nobody_up(depth: int) -> None:
    assert behind_queue(depth, 10_000) == [0] * 5


def test_a_thousand_do_not_either(depth: int, backend: Contract) -> None:
    assert behind_queue(depth, 1000, ADAPTER, backend) == [0] * 5


def test_the_queue_holds_little_more_than_vllm_does_itself() -> None:
    """Memory of a queued throttled request: ours beside stock's, by the allocator's own count."""
    import gc
    import tracemalloc

    from conformance.engine import STOCK

    per_request = {}
    for contract in (STOCK, ADAPTER):
        engine = house(1, rates={"flood": NEVER}, contract=contract, check_kv=False)
        make = engine._factory.make
        engine.add("first", user="flood", prompt=2, max_tokens=9)
        engine.run(4)
        queued = [make(f"flood{i}", user="flood", prompt=[1, 2], max_tokens=4) for i in range(2000)]
        gc.collect()
        tracemalloc.start()
        for request in queued:
            engine.scheduler.add_request(request)
        gc.collect()
        per_request[contract.name] = tracemalloc.get_traced_memory()[0] / 2000
        tracemalloc.stop()
    print(f"bytes a queued request, beside the request itself: {per_request}")
    assert per_request["adapter"] - per_request["stock"] < 1024


def test_a_random_day_beside_a_flood(depth: int, backend: Contract) -> None:
    """Whoever has quota and room is served in the very step, whatever the flood does."""
    draw = random.Random(5)
    engine = house(
        depth,
        backend,
        rates={"flood": 10, "chat": 300},
        max_num_seqs=24,
        max_num_batched_tokens=512,
        num_blocks=2048,
    )
    serial = 0
    for n in range(400):
        if draw.random() < 0.5:
            engine.add(f"flood{n}", user="flood", prompt=draw.randrange(1, 40), max_tokens=20)
        chats = [log for log in engine.requests.values() if log.user == "chat"]
        if sum(not log.finished for log in chats) < 2:
            engine.add(f"chat{serial}", user="chat", prompt=9, max_tokens=draw.randrange(2, 12))
            serial += 1
        engine.step()
    check_bounds(engine, backend)
    check_books(engine)
    firsts = [first_step(engine, f"chat{i}") for i in range(serial - 2)]
    assert all(first is not None and first <= 1 for first in firsts)


def test_side_by_side() -> None:
    """The table of the three schedulers, one depth, to be read with -s."""
    rows = table.rows(depths=[2])
    print("\n" + table.markdown(rows))
    for name, _, ours, *_ in rows[1:]:
        assert "never" not in ours, name
