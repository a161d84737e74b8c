"""The soak's clients and its operator: bounded, and over when the time is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count

from conformance.endpoint.driver import IDENTITY_FIELD
from conformance.endpoint.trace import Stream
from gpu_e2e.soak.visits import Visit, session
from gpu_e2e.suite.play import Client
from gpu_e2e.suite.raw import post

#: Sessions at once, of one to three requests each: more than there are places.
SESSIONS = 24
#: How long the last ones may take after the time is over, in seconds.
DRAIN_S = 90.0
#: What the operator does in turn, every so many seconds; its calls are half a second apart.
EVERY_S = 9.0
TURNS = (
    ("/pause?mode=keep", "/resume"),
    ("/reset_prefix_cache?reset_running_requests=true",),
    ("/sleep?level=1&mode=keep", "/wake_up"),
)
SAMPLE_S = 2.0


@dataclass(slots=True)
class Crowd:
    """What happened; instants are seconds since the start."""

    seconds: float
    limits: Mapping[str, float]  # tokens per second of the named users
    seed: int
    streams: list[tuple[Visit, Stream]] = field(default_factory=list)
    refusals: list[tuple[Visit, int, str]] = field(default_factory=list)
    calls: list[tuple[str, int]] = field(default_factory=list)
    memory: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    sessions: int = 0
    unfinished: int = 0
    most_at_once: int = 0
    _open: int = 0

    async def run(self, driver: Client, sample: Callable[[], dict[str, int]]) -> None:
        """Let them come and go for the time, then wait for the last ones."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        end, numbers = start + self.seconds, count()

        async def come_and_go() -> None:
            while loop.time() < end:
                visits = session(self.seed, next(numbers), self.limits)
                self.sessions += 1
                await asyncio.gather(*(self._visit(driver, visit) for visit in visits))

        async def watch() -> None:
            while loop.time() < end:
                self.memory.append((loop.time() - start, await asyncio.to_thread(sample)))
                await asyncio.sleep(SAMPLE_S)
            self.memory.append((loop.time() - start, await asyncio.to_thread(sample)))

        crowd = [asyncio.create_task(come_and_go()) for _ in range(SESSIONS)]
        others = [asyncio.create_task(self._operate(driver, end)), asyncio.create_task(watch())]
        await asyncio.wait(others)
        _, late = await asyncio.wait(crowd, timeout=DRAIN_S)
        self.unfinished = len(late)
        for task in late:
            task.cancel()
        await asyncio.wait(crowd)
        for task in (*crowd, *others):
            # That the late ones were sent away is known; what else went wrong is an error.
            if not (task in late and task.cancelled()):
                task.result()

    async def _visit(self, driver: Client, visit: Visit) -> None:
        if visit.bad is not None:
            body = {
                "model": driver.model,
                "prompt": visit.ask.prompt,
                "max_tokens": visit.ask.max_tokens,
                "vllm_xargs": {IDENTITY_FIELD: visit.ask.user or "somebody"},
            }
            answer = await post(driver, "/v1/completions", {**body, **visit.bad})
            self.refusals.append((visit, answer.status_code, answer.text[:200]))
            return
        self._open += 1
        self.most_at_once = max(self.most_at_once, self._open)
        stream, task = driver.start(visit.ask)
        self.streams.append((visit, stream))
        if visit.leave_after_s is not None:
            await asyncio.wait([task], timeout=visit.leave_after_s)
            task.cancel()
        await task
        self._open -= 1

    async def _operate(self, driver: Client, end: float) -> None:
        loop, draw = asyncio.get_running_loop(), random.Random(self.seed)
        for turn in count():
            left = end - loop.time()
            if left <= 0:
                return
            await asyncio.sleep(min(left, EVERY_S * draw.uniform(0.7, 1.3)))
            for path in TURNS[turn % len(TURNS)]:
                answer = await post(driver, path, {})
                self.calls.append((path.partition("?")[0], answer.status_code))
                await asyncio.sleep(0.5)
