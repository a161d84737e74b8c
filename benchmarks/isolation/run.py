"""Two real engines in one process, both with our scheduler: one serves a flood besides."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.in_process import Mode, make_llm, prepare
from benchmarks.isolation.figures import Result, result
from benchmarks.isolation.lane import NS_PER_S, Lane, OwnClock, Question, side_by_side

FREE = "interactive"
STREAMS = 32
QUESTIONS = 60
WARM_UP = 4
"""So many questions before those that count."""
PROMPT = 25
ANSWER = 25
"""Both in tokens; the tiny model's tokens are bytes."""
PAUSE_NS = 60_000_000
"""A question comes at most so long after the last answer, as chance has it."""
FLOOD_ANSWER = 470
BURST_S = 0.1
SEATED_WITHIN_NS = 60 * NS_PER_S
SEED = 7


@dataclass(frozen=True)
class Situation:
    """Who is there beside the interactive user: a stream of each user, or all of one user's."""

    name: str
    rates: dict[str, float]
    """Of each of the others, in tokens/s."""

    @property
    def streams(self) -> dict[str, str]:
        """User by request."""
        users = list(self.rates)
        return {f"{self.name}-{n}": users[n % len(users)] for n in range(STREAMS * bool(users))}

    @property
    def rate(self) -> float:
        """Of all others together while the questions are asked; those parked get no token."""
        return sum(rate for rate in self.rates.values() if rate >= 1)


# One that is parked gets the token of its full quota, and with that its place, and then none for
# longer than the whole measurement takes.
SITUATIONS = (
    Situation("nobody", {}),
    Situation("parked", {f"parked-{n}": 1 / 400 for n in range(STREAMS)}),
    *(Situation(f"flood {rate}", {f"flood-{rate}": rate}) for rate in (5, 20, 50)),
)


class RealEngine:
    """vLLM's engine loop without its process, its queues and its front end.

    A request is made ready, and a token turned into text, in a server's other processes: neither
    is any of the engine's time.
    """

    def __init__(self, engine: Any, clock: OwnClock) -> None:
        self._front = engine.llm_engine.input_processor
        self._client = engine.llm_engine.engine_core
        self._core = self._client.engine_core
        self._scheduler = self._core.scheduler
        self._scheduler.clock = clock
        self._ready: dict[str, Any] = {}

    def make_ready(self, request: str, user: str, tokens: int) -> None:
        """What the front end does, before the request is added."""
        from vllm import SamplingParams

        params = SamplingParams(
            max_tokens=tokens,
            ignore_eos=True,
            temperature=0.0,
            extra_args={"output_rate_user": user},
        )
        draw = random.Random(request)
        prompt = {"prompt_token_ids": [draw.randrange(0x20, 0x7F) for _ in range(PROMPT)]}
        self._ready[request] = self._front.process_inputs(
            request, prompt, params, supported_tasks=("generate",)
        )

    @property
    def busy(self) -> bool:
        return bool(self._scheduler.has_requests() or self._core.batch_queue)

    @property
    def others(self) -> int:
        return int(self._scheduler.ledger.total().dispatched)

    def add(self, request: str) -> None:
        self._client.add_request(self._ready.pop(request))

    def step(self) -> Collection[str]:
        outputs = self._client.get_output().outputs
        return [each.request_id for each in outputs for _ in each.new_token_ids]

    def wait_s(self) -> float:
        return float(self._scheduler.output_rate_wait_s())

    def abort(self, requests: Collection[str]) -> None:
        self._client.abort_requests(list(requests))


def engines(mode: Mode) -> tuple[RealEngine, RealEngine, list[Lane]]:
    """Both, each with a lane: first the one that serves nobody else. They live in this process."""
    prepare(mode)
    from sched_adapter import engine as loop

    # In a caller's process the loop sleeps while it waits for quota. Here the lane does that, by
    # the engine's own clock.
    loop.MAX_WAIT_S = 0.0  # type: ignore[misc]
    clocks = OwnClock(), OwnClock()
    rates = {user: rate for each in SITUATIONS for user, rate in each.rates.items()}
    alone, beside = (RealEngine(make_llm(mode, {"rates": rates}), clock) for clock in clocks)
    return alone, beside, [Lane(alone, clocks[0]), Lane(beside, clocks[1])]


def measured(mode: Mode, count: int = QUESTIONS) -> Iterator[tuple[Situation, Result]]:
    """Each situation's figures, from so many questions."""
    alone, beside, lanes = engines(mode)
    pauses = random.Random(SEED)
    for situation in SITUATIONS:
        _seat(situation, beside, lanes[1])
        first: list[Question] = []
        second: list[Question] = []
        for n in range(WARM_UP + count):
            request = f"{situation.name}, question {n}"
            for engine in (alone, beside):
                engine.make_ready(request, FREE, ANSWER)
            order = (1, -1)[n % 2]
            pause_ns = pauses.randrange(PAUSE_NS)
            pair = side_by_side(lanes[::order], request, pause_ns, ANSWER)[::order]
            if n >= WARM_UP:
                first.append(pair[0])
                second.append(pair[1])
        found = result(first, second, lanes[1].others_ns, ANSWER)
        _check_rate(situation, found, second)
        yield situation, found
        beside.abort(situation.streams)
        for lane in lanes:
            while lane.engine.busy:
                lane.step()


def _seat(situation: Situation, engine: RealEngine, lane: Lane) -> None:
    """Start the others, and wait until each stream has its place and its first token."""
    lane.others_ns.clear()
    for request, user in situation.streams.items():
        engine.make_ready(request, user, FLOOD_ANSWER)
        lane.add(request)
    deadline_ns = lane.clock() + SEATED_WITHIN_NS
    while len(lane.others_ns) < len(situation.streams):
        lane.until(lane.clock() + NS_PER_S // 10)
        if lane.clock() > deadline_ns:
            seated = f"{len(lane.others_ns)} of {len(situation.streams)}"
            raise ValueError(f"{situation.name}: {seated} streams have a token")


def _check_rate(situation: Situation, found: Result, questions: list[Question]) -> None:
    """ValueError if the others got more than they may, or less than their share of the engine."""
    seconds = (questions[-1].tokens_ns[-1] - questions[0].arrived_ns) / NS_PER_S
    tokens, share = found.others_per_s * seconds, situation.rate * seconds
    # Besides its share a full quota, of which as much may be dispatched before and come out since.
    most = share + 2 * (situation.rate * BURST_S + 1) if situation.rate else 0
    if not 0.9 * share - 1 <= tokens <= most:
        raise ValueError(f"{situation.name}: {tokens:.0f} tokens in {seconds:.2f} s")
