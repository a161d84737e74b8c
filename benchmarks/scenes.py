"""Steps to measure: the real vLLM scheduler with a given crowd in it, on a clock of its own.

A scene has residents, some of them out of quota and parked, and requests that wait. The same scene
for stock vLLM, which knows no limits, holds the eligible residents alone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.opcodes import count
from conformance.engine import (
    ADAPTER,
    STOCK,
    UNLIMITED,
    Limits,
    ManualClock,
    SchedulerContract,
    ScriptedEngine,
)
from conformance.level2.spy import SpyLimiter

SPY = f"{SpyLimiter.__module__}:{SpyLimiter.__qualname__}"

NOT_REACHED = 10**6
"""Tokens per second: a limit that no scene reaches."""

STEP_NS = 2_000_000
"""How long a step takes by the scene's clock, in ns."""

_OUT_OF_QUOTA = "1/1000"
_PROMPT = 4
_MOST_STEPS = 60
_STEADY_STEPS = 3


@dataclass(frozen=True)
class Scene:
    """A crowd. The eligible have limits that they do not reach; the rest are out of quota."""

    residents: int
    throttled: int = 0
    """Of the residents, those of users out of quota."""
    users: int = 16
    """Users of the eligible residents, and as many of the throttled ones."""
    waiting: int = 0
    """Requests of one user out of quota that wait for a place."""
    depth: int = 1
    """1: synchronous scheduling, 2: asynchronous."""

    @property
    def eligible(self) -> int:
        return self.residents - self.throttled

    @property
    def mode(self) -> str:
        return "sync" if self.depth == 1 else "async"

    def of_stock(self) -> Scene:
        """What stock vLLM is compared with: nobody but the eligible."""
        return replace(self, residents=self.eligible, throttled=0, waiting=0)


def limits(scene: Scene, **more: Any) -> Limits:
    """The limits of a scene's users; `more` goes to `Limits`."""
    rates = {f"out-{n}": _OUT_OF_QUOTA for n in range(scene.users)} if scene.throttled else {}
    if scene.waiting:
        rates["queue"] = _OUT_OF_QUOTA
    return Limits(**{"default_rate": NOT_REACHED, "rates": rates, **more})


def engine(scene: Scene, contract: SchedulerContract = ADAPTER) -> ScriptedEngine:
    """An engine in which the scene is set and decodes steadily.

    Raises AssertionError if the scheduler does not let everybody in, or serves somebody else.
    """
    made = crowd(scene, contract, UNLIMITED if contract is STOCK else limits(scene))
    settle(made, scene)
    return made


def crowd(
    scene: Scene,
    contract: SchedulerContract,
    limits: Limits,
    step_ns: int = STEP_NS,
    room: int = 0,
) -> ScriptedEngine:
    """An engine with the scene's requests, before its first step, and `room` for more."""
    # One place in eight is kept for users with quota: the throttled must all fit into the others.
    slots = scene.residents
    if scene.throttled or scene.waiting:
        slots += scene.residents // 7 + 8
    slots += room
    made = ScriptedEngine(
        contract,
        limits,
        depth=scene.depth,
        clock=ManualClock(seed=5),
        step_ns=step_ns,
        check_kv=False,
        keep_steps=1,
        keep_instants=False,
        max_num_seqs=slots,
        max_num_batched_tokens=max(8192, slots * _PROMPT),
        max_model_len=512,
        block_size=16,
        num_blocks=2 * slots + 30 * scene.eligible,
    )
    for n in range(scene.eligible):
        made.add(f"e{n}", user=f"in-{n % scene.users}", prompt=_PROMPT, max_tokens=500)
    for n in range(scene.throttled):
        made.add(f"t{n}", user=f"out-{n % scene.users}", prompt=_PROMPT, max_tokens=500)
    if scene.waiting:
        # Those who get the free places that are not kept, and those who wait.
        for n in range(scene.waiting + slots - scene.residents):
            made.add(f"w{n}", user="queue", prompt=_PROMPT, max_tokens=500)
    return made


def settle(made: ScriptedEngine, scene: Scene) -> None:
    """Step until everybody is in and only the eligible are served."""
    for _ in range(_MOST_STEPS):
        served = made.step().scheduled
        resident, waiting = made.scheduler.get_request_counts()
        inside = waiting >= scene.waiting if scene.waiting else resident == scene.residents
        if inside and len(served) == scene.eligible:
            break
    else:
        raise AssertionError(
            f"after {_MOST_STEPS} steps {resident} resident, {waiting} wait, {len(served)} served; "
            f"the scene: {scene}"
        )
    users = {made.requests[request_id].user for request_id in served}
    assert len(users) == min(scene.users, scene.eligible), f"served: {users}"
    made.run(_STEADY_STEPS)


@contextmanager
def _watched(made: ScriptedEngine, scene: Scene, watch: Callable[..., Any]) -> Iterator[None]:
    """Have `watch(schedule)` call each step's schedule()."""
    plain = made.scheduler.schedule

    def watched(*args: Any, **kwargs: Any) -> Any:
        output = watch(plain, *args, **kwargs)
        served = len(output.num_scheduled_tokens)
        assert served == scene.eligible, f"{served} served, the scene wants {scene.eligible}"
        return output

    made.scheduler.schedule = watched
    try:
        yield
    finally:
        del made.scheduler.schedule


def opcodes(made: ScriptedEngine, scene: Scene) -> int:
    """Instructions of the next schedule().

    One step is enough: a scene is the same to the last block, and none of its steps is at the
    end of one.
    """
    counts: list[int] = []

    def watch(schedule: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        counted = count(schedule, *args, **kwargs)
        counts.append(counted.opcodes)
        return counted.answer

    with _watched(made, scene, watch):
        made.step()
    return counts[0]


def cpu_ns(made: ScriptedEngine, scene: Scene, steps: int = 15) -> int:
    """Thread CPU of one schedule() in ns, the least of some steps."""
    took: list[int] = []

    def watch(schedule: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        start = time.thread_time_ns()
        output = schedule(*args, **kwargs)
        took.append(time.thread_time_ns() - start)
        return output

    with _watched(made, scene, watch):
        made.run(steps)
    return min(took)


def calls(scene: Scene, rate: int, steps: int) -> dict[str, int]:
    """How often a limiter is asked in so many steps of 10 ms, by verb, and tokens dispatched.

    `rate` is that of each user of the scene, in tokens per second.
    """
    settings = {"backend": "gcra", "backend_options": {}}
    spied = limits(scene, default_rate=rate, limiter=SPY, options=settings)
    made = crowd(scene, ADAPTER, spied, step_ns=10_000_000)
    made.run(20)
    spy = SpyLimiter.made[-1]
    spy.calls.clear()
    sampled = sum(len(made.step().sampled) for _ in range(steps))
    asked = Counter(call.verb for call in spy.calls)
    return {**dict(sorted(asked.items())), "tokens": sampled}
