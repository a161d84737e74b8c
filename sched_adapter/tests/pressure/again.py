"""Who is let in again after a preemption, and whether it keeps its place until its next token."""

from __future__ import annotations

from collections import Counter
from typing import Any

from conformance.contract import Contract
from conformance.engine import ScriptedEngine
from conformance.engine.observe import StepLog
from sched_adapter.tests.pressure.house import rate_of


class Again:
    """Steps an engine and judges the re-admissions of some limited users.

    Excepted: a step in which nobody is short, or the user has a token for each of its streams; and
    one in which all others that could give way have had their turn, or are of better priority.
    """

    def __init__(self, engine: ScriptedEngine, backend: Contract, *users: str) -> None:
        self.engine = engine
        self.owed: dict[str, int] = {}
        """Let in again and without a token since: id -> step."""
        self.most_owed = 0
        """The most of them at once after a step."""
        self.readmitted: Counter[str | None] = Counter()
        self.preempted: Counter[str | None] = Counter()
        """By user, those preempted while out of quota."""
        self.early: list[str] = []
        """In words: each that was preempted between its re-admission and its next token."""
        self._asking: Any = None
        self._excused: set[str] = set()
        self._quota: dict[str | None, int] = {}
        self._limiters = {}
        for user in users:
            limiter = self._limiters[user] = backend.limiter(
                None,
                rates={user: rate_of(engine, user)},
                burst_ns=engine.limits.burst_ns,  # type: ignore[attr-defined]
            )
            for instant in engine.history.dispatches(user):
                assert limiter.try_take(user, instant)
        scheduler = engine.scheduler
        self._allocate, self._preempt = scheduler._allocate_slots, scheduler._preempt_request
        scheduler._allocate_slots, scheduler._preempt_request = self._asks, self._goes

    def _asks(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        self._asking = request
        return self._allocate(request, *args, **kwargs)

    def _goes(self, victim: Any, *args: Any, **kwargs: Any) -> Any:
        """Note whether somebody else could have given way: whoever asks and all behind it could."""
        running, asking = list(self.engine.scheduler.running), self._asking
        if asking in running:
            running = running[running.index(asking) :]
        elif asking is victim:
            running = []  # it was the last one
        if not any(
            other is not victim
            and other.output_rate_line.level >= victim.output_rate_line.level
            and not self._is_kept(other.request_id)
            for other in running
        ):
            self._excused.add(victim.request_id)
        return self._preempt(victim, *args, **kwargs)

    def _is_kept(self, name: str) -> bool:
        user = self.engine.requests[name].user
        return name in self.owed and self._quota[user] > 0

    def step(self) -> StepLog:
        now = self.engine.clock()
        quota = {user: int(each.available(user, now)) for user, each in self._limiters.items()}
        live = Counter(log.user for log in self.engine.requests.values() if not log.finished)
        self._quota = dict(quota)
        self._asking = None
        self._excused.clear()
        step = self.engine.step()
        user_of = {name: log.user for name, log in self.engine.requests.items()}
        for name in step.sampled:
            if user_of[name] in quota:
                assert self._limiters[user_of[name]].try_take(user_of[name], now)
        everybody = self.engine.scheduler.settlement.step.everybody
        for name in step.preempted:
            user, since = user_of[name], self.owed.pop(name, None)
            if user not in quota:
                continue
            self.preempted[user] += not quota[user]
            enough = quota[user] >= live[user]
            if since is not None and not (everybody or enough or name in self._excused):
                self.early.append(f"{name} let in again in step {since}, out in {step.index}")
        for name in step.resumed:
            user = user_of[name]
            if user in quota:
                assert quota[user], f"{name} was let in again without quota"
                self.readmitted[user] += 1
                if name not in step.sampled:
                    self.owed[name] = step.index
        for name in list(self.owed):
            if name in step.sampled or self.engine.requests[name].finished:
                del self.owed[name]
        self.most_owed = max(self.most_owed, len(self.owed))
        return step

    def run(self, steps: int) -> list[StepLog]:
        return [self.step() for _ in range(steps)]
