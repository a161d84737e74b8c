"""A crowd that comes and goes on the real scheduler: many users, many residents, a manual clock."""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks import scenes
from benchmarks.opcodes import count
from benchmarks.scenes import Scene
from conformance.engine import ADAPTER

STEP_NS = 10_000_000


@dataclass(frozen=True)
class Passage:
    """What many users left behind who each came once, took one token and went."""

    opcodes: int
    """Instructions of a step after the last of them."""
    cpu_us: list[float]
    """Thread CPU of schedule() in us, the median of each tenth of the passage."""
    users_left: int
    """Users of whom the scheduler still knows, and those of whom the limiter does."""
    limited_left: int


def passage(users: int, scene: Scene, at_once: int = 250) -> Passage:
    """Have so many users pass, `at_once` new ones in each step of 10 ms, through a set scene.

    For a step that is the same as after another passage, the steps have to be a multiple of 16,
    a block's length; after 480 of them the scene's own requests end.
    """
    assert users % (16 * at_once) == 0
    assert users <= 480 * at_once
    settings = scenes.limits(scene)
    made = scenes.crowd(scene, ADAPTER, settings, step_ns=STEP_NS, room=2 * at_once)
    scenes.settle(made, scene)
    known = len(made.scheduler.turns.users)
    plain, took = made.scheduler.schedule, []

    def timed() -> object:
        start = time.thread_time_ns()
        output = plain()
        took.append(time.thread_time_ns() - start)
        return output

    made.scheduler.schedule = timed
    for first in range(0, users, at_once):
        for n in range(first, first + at_once):
            made.add(f"passer-{n}", user=f"passer-{n}", max_tokens=1)
        made.step()
        for n in range(first, first + at_once):  # a harness that forgets, as a server does
            if made.requests[f"passer-{n}"].finished:
                del made.requests[f"passer-{n}"]
    made.scheduler.schedule = plain
    made.run(4)
    after = count(made.scheduler.schedule).opcodes
    # The limiter is cleaned up once a second.
    made.scheduler.limiter.cleanup_idle_users(made.clock() + 1_000_000_000)
    tenth = len(took) // 10
    parts = [sorted(took[n * tenth : (n + 1) * tenth])[tenth // 2] / 1e3 for n in range(10)]
    return Passage(
        opcodes=after,
        cpu_us=parts,
        users_left=len(made.scheduler.turns.users) - known,
        limited_left=len(made.scheduler.limiter),
    )
