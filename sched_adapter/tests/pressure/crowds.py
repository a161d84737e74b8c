"""Houses full of people, and how each of them fares: figures for any scheduler."""

from __future__ import annotations

from itertools import count
from math import ceil
from typing import Any, NamedTuple

from conformance.contract import Contract
from conformance.contracts import GCRA
from conformance.engine import ADAPTER, SchedulerContract, ScriptedEngine
from sched_adapter.tests.pressure.house import NEVER, SECOND, first_step, house

#: "Not in this run", in steps.
NOT_SEEN = None


def jain(tokens: list[int]) -> float:
    """Jain's index of what users got: 1 is equal, 1/n is one for all. 0 if nobody got anything."""
    squares = sum(n * n for n in tokens)
    return sum(tokens) ** 2 / len(tokens) / squares if squares else 0.0


class Flood(NamedTuple):
    """A user with quota that arrives beside a flood."""

    first_token: int | None  # steps after its arrival; None: none in 300
    missed: int  # steps after that, of 200, without a token for it
    preempted: int


def beside_flood(
    depth: int,
    requests: int,
    contract: SchedulerContract = ADAPTER,
    backend: Contract | str = GCRA,
    *,
    prompt: int = 6,
    **settings: Any,
) -> Flood:
    """16 places, 4 in a step. A flood of long answers out of quota, then somebody with quota."""
    engine = house(
        depth,
        backend,
        rates={"flood": 10, "chat": 1000},
        contract=contract,
        **{"max_num_seqs": 16, "max_num_active_seqs": 4, "check_kv": False, **settings},
    )
    for i in range(requests):
        engine.add(f"flood{i}", user="flood", prompt=prompt, max_tokens=400, ignore_eos=True)
    engine.run(50)
    engine.add("chat", user="chat", prompt=5, max_tokens=400, ignore_eos=True)
    steps = engine.run(300)
    first = first_step(engine, "chat")
    if first is None:
        return Flood(None, 200, 0)
    missed = sum("chat" not in step.sampled for step in steps[first : first + 200])
    return Flood(first, missed, sum(len(step.preempted) for step in steps))


class Turns(NamedTuple):
    """Users of equal demand with more quota than there are places."""

    jain: float  # the worst over any 25 * ceil(users / cap) steps
    wait: int  # steps, the longest from a token of a user to its next


def all_resident(
    depth: int,
    streams: list[int],
    cap: int,
    contract: SchedulerContract = ADAPTER,
    backend: Contract | str = GCRA,
    **settings: Any,
) -> ScriptedEngine:
    """User i with `streams[i]` endless streams, all of them resident, and quota for all."""
    places = 2 * sum(streams)
    engine = house(
        depth,
        backend,
        default_rate=200,
        contract=contract,
        **{
            "max_num_seqs": places,
            "max_num_active_seqs": cap,
            "max_model_len": 4096,
            "num_blocks": 8192,
            "check_kv": False,
            **settings,
        },
    )
    serial = count()
    for round_ in range(max(streams)):
        for i, mine in enumerate(streams):
            if round_ < mine:
                engine.add(
                    f"u{i}-{next(serial)}",
                    user=f"u{i}",
                    prompt=2 + round_,
                    max_tokens=3000,
                    ignore_eos=True,
                )
    return engine


def turns(
    depth: int,
    streams: list[int],
    cap: int,
    contract: SchedulerContract = ADAPTER,
    backend: Contract | str = GCRA,
    **settings: Any,
) -> Turns:
    """How even the steps of 100 ms are shared."""
    engine = all_resident(depth, streams, cap, contract, backend, **settings)
    users = [f"u{i}" for i in range(len(streams))]
    wave = ceil(len(users) / cap)
    if contract is ADAPTER:
        # They take their places out of quota, at one instant; then quota comes for all.
        for _ in range(40 * len(users)):
            if engine.scheduler.get_request_counts()[0] == sum(streams):
                break
            engine.step(0)
        assert engine.scheduler.get_request_counts()[0] == sum(streams)
        engine.step(20 * SECOND)
    engine.run(wave, SECOND // 10)
    served = [
        [engine.requests[name].user for name in engine.step(SECOND // 10).sampled]
        for _ in range(40 * wave)
    ]
    return Turns(worst_jain(served, users, 25 * wave), longest_wait(served, users))


def worst_jain(served: list[list[str | None]], users: list[str], window: int) -> float:
    """The least index over all windows of so many steps."""
    return min(
        jain([sum(step.count(user) for step in served[at : at + window]) for user in users])
        for at in range(len(served) - window + 1)
    )


def longest_wait(served: list[list[str | None]], users: list[str]) -> int:
    """Steps until a user is served again, at worst; 1 is in every step."""
    longest = 0
    for user in users:
        waited = 0
        for step in served:
            waited = 0 if user in step else waited + 1
            longest = max(longest, waited + 1)
    return longest


def first_of_own(
    depth: int,
    streams: int,
    rate: int,
    contract: SchedulerContract = ADAPTER,
    backend: Contract | str = GCRA,
    *,
    chunked: bool = True,
    prompt: int = 20,
) -> list[int | None]:
    """Two streams use up a user's quota, the others come later: ns to the first token of each."""
    engine = house(
        depth,
        backend,
        rates={"own": rate},
        contract=contract,
        max_num_seqs=16,
        chunked_prefill=chunked,
        max_num_batched_tokens=512,
        num_blocks=2048,
        check_kv=False,
    )
    for i in range(2):
        engine.add(f"early{i}", user="own", prompt=4, max_tokens=400, ignore_eos=True)
    engine.run_for(2 * SECOND)
    arrived = engine.clock()
    late = [f"late{i}" for i in range(streams - 2)]
    for name in late:
        engine.add(name, user="own", prompt=prompt, max_tokens=400, ignore_eos=True)
    engine.run_for(-(-streams // rate) * SECOND + SECOND)
    logs = (engine.requests[name] for name in late)
    return [log.dispatch_ns[0] - arrived if log.dispatch_ns else None for log in logs]


def behind_queue(
    depth: int,
    queued: int,
    contract: SchedulerContract = ADAPTER,
    backend: Contract | str = GCRA,
) -> list[int | None]:
    """Steps to the first token of five users, one a step, behind so many throttled requests."""
    engine = house(
        depth,
        backend,
        rates={"flood": NEVER},
        contract=contract,
        max_num_seqs=16,
        check_kv=False,
    )
    for i in range(queued):
        engine.add(f"flood{i}", user="flood", prompt=2, max_tokens=2)
    engine.run(4)
    for i in range(5):
        engine.add(f"late{i}", user=f"late{i}", prompt=3, max_tokens=30, ignore_eos=True)
        engine.step()
    engine.run(20)
    return [first_step(engine, f"late{i}") for i in range(5)]
