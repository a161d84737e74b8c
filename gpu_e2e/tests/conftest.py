"""A whole main job without a server: what the engine would record and the clients would see."""

from __future__ import annotations

import dataclasses
from collections import Counter
from fractions import Fraction

import pytest

from conformance.endpoint.record import EngineRecord
from conformance.endpoint.trace import Stream
from gpu_e2e import workload

SECOND = 1_000_000_000
STEP = 5_000_000
START = 77 * SECOND


class World:
    """Simulates the engine in steps of 5 ms: GCRA, turns, everybody in every step.

    `faults` are switched on one at a time; `record()` and `run` are then what the job judges.
    """

    def __init__(self, mode="sync", **faults):
        self.mode, self.faults = mode, faults
        rates = {user: str(rate) for user, rate in workload.LIMITS.items()}
        self.events = [
            {
                "e": "meta",
                "limiter": "gcra",
                "burst_ns": 100_000_000,
                "default_rate": None,
                "rates": rates,
            }
        ]
        self.run = workload.Run()
        self.tat = dict.fromkeys(workload.LIMITS, Fraction(0))
        self.step = 0
        self.now = START
        self.open = {}
        self.served = Counter()
        self._alone()
        self._together()
        self.run.stall_ns = 3_000_000

    def record(self):
        return EngineRecord.of(self.events)

    def _ask(self, ask, tokens):
        stream = Stream(ask=ask, started_ns=self.now, prompt_tokens=280, request_id=ask.name)
        self.run.streams.append(stream)
        self.open[ask.name] = (stream, tokens)

    def _event(self, kind, stream, **keys):
        who = {"user": stream.user, "req": stream.ask.name}
        self.events.append({"e": kind, "ns": self.now, **who, **keys})

    def _serve(self, stream, tokens):
        limited = stream.user in workload.LIMITS
        free = self.faults.get("free_of_charge") == stream.user
        self._event("dispatch", stream, step=self.step, charged=limited and not free)
        if self.faults.get("prompt_charged") == stream.user and len(stream.token_ns) < 2:
            self._event("dispatch", stream, step=self.step, charged=True)
            if self.faults.get("called_lost"):
                self._event("lost", stream, n=1, why="prompt")
        index = len(stream.token_ns)
        stream.token_ns.append(self.now + 1_000_000)
        stream.token_ids.append(hash((stream.ask.prompt, index)) % 1000)
        self.served[stream.ask.name] = self.step
        if self.mode == "sync" or index:
            self._event("output", stream, n=1)
        if len(stream.token_ns) < tokens:
            return
        if self.mode == "async":
            self._event("output", stream, n=1)
        stream.finish_reason = "length" if tokens == stream.ask.max_tokens else "stop"
        stream.completion_tokens, stream.ended_ns = tokens, self.now + 1_000_000
        self._event("finish", stream, status="FINISHED", tokens=tokens)
        del self.open[stream.ask.name]

    def _step(self):
        self.step += 1
        for name in sorted(self.open, key=self.served.__getitem__):
            stream, tokens = self.open[name]
            user = stream.user
            if user in workload.LIMITS:
                if self.tat[user] - self.now > 100_000_000:
                    if self.events[-1]["e"] != "throttled":
                        keys = {"ns": self.now, "user": user, "ready_ns": self.now}
                        self.events.append({"e": "throttled", **keys})
                    continue
                every = SECOND / (workload.LIMITS[user] * self.faults.get("times", 1))
                self.tat[user] = max(self.tat[user], Fraction(self.now)) + every
            elif self.faults.get("free_user_held") and self.step % 2 and len(self.open) > 1:
                continue
            self._serve(stream, tokens)
        self.now += STEP

    def _finish(self, *names):
        while any(name in self.open for name in names):
            self._step()

    def _alone(self):
        start = self.now
        ask = workload.limited_asks()[-1]
        ask = dataclasses.replace(ask, user=workload.FREE, name="alone", max_tokens=100)
        self._ask(ask, 100)
        self._finish("alone")
        self.run.alone = (start, self.now)
        self.now += SECOND

    def _together(self):
        start = self.now
        expected = workload.expected_tokens()
        asks = workload.limited_asks()
        for ask in asks:
            self._ask(ask, expected[ask.name])
        for ask in asks:
            free = dataclasses.replace(ask, user=workload.FREE, name=f"carol-{ask.name}-0")
            self._ask(free, expected[ask.name])
            self._finish(free.name)
        self._finish(*expected)
        self.run.together = (start, self.now)


@pytest.fixture(scope="session")
def world():
    """Makes a `World`."""
    return World
