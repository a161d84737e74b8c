"""An engine's life on a clock of its own, which stands still while another engine has its turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

NS_PER_S = 1_000_000_000


class OwnClock:
    """Monotonic ns that pass only in the block of `running`, and by `skip_to`."""

    def __init__(self, source: Callable[[], int] = time.monotonic_ns) -> None:
        self._source = source
        self._base_ns = 1_000 * NS_PER_S  # no instant is near zero
        self._began_ns: int | None = None

    def __call__(self) -> int:
        """The engine's own time, also from within a step."""
        passed_ns = 0 if self._began_ns is None else self._source() - self._began_ns
        return self._base_ns + passed_ns

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let it go on as the wall clock does."""
        self._began_ns = self._source()
        try:
            yield
        finally:
            self._base_ns, self._began_ns = self(), None

    def skip_to(self, instant_ns: int) -> None:
        """What would be slept through passes at once. It never goes back."""
        self._base_ns = max(self._base_ns, instant_ns)


class Engine(Protocol):
    """What a lane asks of an engine."""

    @property
    def busy(self) -> bool:
        """Whether its loop would step rather than wait for a message."""

    @property
    def others(self) -> int:
        """Tokens of limited users that were dispatched so far."""

    def add(self, request: str) -> None: ...

    def step(self) -> Collection[str]:
        """Take one; the requests that it gave a token, each as often as it gave one."""

    def wait_s(self) -> float:
        """After a step that gave nothing: the seconds that its loop would wait for quota now."""


@dataclass
class Question:
    """One of the interactive user's. Instants are in ns of the engine's own clock."""

    request: str
    arrived_ns: int
    held: bool = False
    """Whether it arrived while a step was under way that served others."""
    tokens_ns: list[int] = field(default_factory=list)
    """When each token of the answer came out: the end of its step."""
    steps: list[int] = field(default_factory=list)
    """The numbers of these steps."""


class Lane:
    """One engine, its clock, and what came out of it when."""

    def __init__(self, engine: Engine, clock: OwnClock) -> None:
        self.engine, self.clock = engine, clock
        self.others_ns: list[int] = []
        """When each token of another request than the question came out."""
        self._question: Question | None = None
        self._steps = 0
        self._served_others_ns = clock()  # the end of the last step that did
        self._waits = False

    def add(self, request: str) -> None:
        """Hand a request over, between two steps; the engine pays for it in its own time."""
        with self.clock.running():
            self.engine.add(request)
        self._waits = False  # a message ends the wait for quota

    def step(self) -> None:
        before = self.engine.others
        with self.clock.running():
            served = self.engine.step()
        now_ns = self.clock()
        self._steps += 1
        if self.engine.others > before:
            self._served_others_ns = now_ns
        self._waits = not served
        for request in served:
            if self._question and request == self._question.request:
                self._question.tokens_ns.append(now_ns)
                self._question.steps.append(self._steps)
            else:
                self.others_ns.append(now_ns)

    def until(self, instant_ns: int) -> None:
        """Live up to the instant, or to the end of the step that is under way by then.

        An engine with nothing to do, or nothing but to wait for quota, goes there at once.
        """
        while (now_ns := self.clock()) < instant_ns:
            if not self.engine.busy:
                self.clock.skip_to(instant_ns)
            elif self._waits and (wait_s := self.engine.wait_s()) > 0:
                self.clock.skip_to(min(instant_ns, now_ns + max(1, int(wait_s * NS_PER_S))))
            else:
                self.step()

    def ask(self, request: str, arrives_ns: int) -> Question:
        """Live until the question arrives, then hand it over as soon as no step is under way."""
        self.until(arrives_ns)
        question = Question(request, arrives_ns, held=self._served_others_ns > arrives_ns)
        self._question = question
        self.add(request)
        return question


def side_by_side(
    lanes: Collection[Lane], request: str, pause_ns: int, tokens: int
) -> list[Question]:
    """One question to each, `pause_ns` of its own time after now; the first of them begins.

    Once both have it, they take turns until both have answered, and who begins changes.
    """
    questions = [lane.ask(request, lane.clock() + pause_ns) for lane in lanes]
    turns = list(zip(lanes, questions, strict=True))
    while turns:
        for lane, _ in turns:
            lane.step()
        turns = [(lane, each) for lane, each in turns[::-1] if len(each.tokens_ns) < tokens]
    return questions
