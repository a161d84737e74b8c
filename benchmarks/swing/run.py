"""Simulate a crowd of users that always want more, and read the size of the batch off each step."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from conformance.engine import ADAPTER, Limits, ManualClock, ScriptedEngine

STEP_NS = 10_000_000
STEPS_PER_S = 1_000_000_000 // STEP_NS


@dataclass(frozen=True)
class Backend:
    title: str
    name: str
    options: Mapping[str, Any]


BACKENDS = (
    Backend("GCRA", "gcra", {}),
    Backend("token bucket", "token_bucket", {}),
    Backend("rolling window, 0.1 s", "rolling_window", {}),
    Backend("rolling window, 1 s", "rolling_window", {"window_ns": 1_000_000_000}),
)


@dataclass(frozen=True)
class Crowd:
    """Users that always have more to say than their rate allows."""

    title: str
    users: int = 64
    streams: int = 4
    """Of each user."""
    rates: tuple[int, ...] = (20,)
    """In tokens per second, dealt out in turn."""
    within_s: float = 0.0
    """They start at random within so many seconds; 0: all at once, in phase."""


CROWDS = (
    Crowd("20/s each, all start at once"),
    Crowd("10/s to 30/s, all start at once", rates=tuple(range(10, 31))),
    Crowd("20/s each, start within a second", within_s=1.0),
)


def batches(backend: Backend, crowd: Crowd, seconds: int, skip: int = 2) -> list[int]:
    """The number of requests in each step of 10 ms, for so many seconds after the first `skip`.

    No step is crowded: the active cap lets every stream take part in one.
    """
    streams = crowd.users * crowd.streams
    engine = ScriptedEngine(
        ADAPTER,
        Limits(
            rates={f"user-{n}": crowd.rates[n % len(crowd.rates)] for n in range(crowd.users)},
            limiter=backend.name,
            options=backend.options,
        ),
        clock=ManualClock(seed=1),
        step_ns=STEP_NS,
        check_kv=False,
        keep_steps=1,
        keep_instants=False,
        max_num_seqs=streams,
        max_num_batched_tokens=4 * streams,
        max_model_len=512,
        block_size=16,
        num_blocks=32 * streams,
    )
    starts = random.Random(1)
    pending = sorted(
        (int(starts.random() * crowd.within_s * STEPS_PER_S), user) for user in range(crowd.users)
    )
    sizes = []
    for step in range((skip + seconds) * STEPS_PER_S):
        while pending and pending[0][0] <= step:
            _, user = pending.pop(0)
            for stream in range(crowd.streams):
                engine.add(f"{user}-{stream}", user=f"user-{user}", max_tokens=500)
        sizes.append(engine.step().batch_size)
    return sizes[skip * STEPS_PER_S :]
