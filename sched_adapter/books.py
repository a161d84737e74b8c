"""The step's bookkeeping: the ledger always, the engine's record when asked for."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from limiters import parse_rate
from limiters.rate import RateLike
from sched_adapter.ledger import Ledger
from sched_adapter.record import Recorder


class Books:
    """Tells the ledger, and the recorder if there is one, what happened to whose tokens."""

    def __init__(self, recorder: Recorder | None = None) -> None:
        self.ledger = Ledger()
        self.recorder = recorder
        self.now_ns = 0  # the step's instant
        # Only with a recorder: request -> user, tokens delivered, those that ended in this step.
        self._user: dict[str, str] = {}
        self._tokens: Counter[str] = Counter()
        self._ended: list[tuple[str, str]] = []
        self._delivering = False

    def join(self, request_id: str, user: str) -> None:
        self.ledger.stay(user)
        if self.recorder:
            self._user[request_id] = user
            self.recorder.event("arrive", time.monotonic_ns(), user=user, req=request_id)

    def take(self, user: str, tokens: int) -> None:
        self.ledger.charged[user] += tokens

    def take_all(self, tokens: Counter[str]) -> None:
        """Each of these users was charged so many tokens; the object stays as it is."""
        self.ledger.charge(tokens)

    def refund(self, user: str, tokens: int) -> None:
        self.ledger.refunded[user] += tokens
        if self.recorder:
            self.recorder.event("refund", self.now_ns, user=user, n=tokens)

    def dispatch(
        self,
        step: int,
        output: SchedulerOutput,
        chunks: set[str],
        sampled: Counter[str],
        requests: dict[str, Request],
    ) -> None:
        """``output`` went out: ``sampled`` maps limited users to tokens, ``chunks`` sample none."""
        scheduled = output.num_scheduled_tokens
        if sampled:
            self.ledger.dispatch(id(output), scheduled, chunks, sampled)
        if self.recorder:
            for request_id in scheduled:
                if request_id not in chunks:
                    user = requests[request_id].output_rate_line.user
                    self.recorder.event(
                        "dispatch",
                        self.now_ns,
                        step=step,
                        user=user.name,
                        req=request_id,
                        charged=user.limited,
                    )

    def deliver(self, output: SchedulerOutput) -> None:
        """The output of that step is about to be processed."""
        self._delivering = True
        self.ledger.deliver(id(output))

    def delivered(self, outputs: dict[int, Any]) -> None:
        """The output of a step was processed; ``outputs`` goes to the clients."""
        self._delivering = False
        self.ledger.fold()
        if self.recorder is None:
            return
        ns = time.monotonic_ns()
        for batch in outputs.values():
            for each in batch.outputs:
                request_id, count = each.request_id, len(each.new_token_ids)
                if count:
                    self._tokens[request_id] += count
                    user = self._user.get(request_id)
                    self.recorder.event("output", ns, user=user, req=request_id, n=count)
        self._note_ended(ns)

    def lose(self, request: Request, why: str) -> None:
        """What is in flight for the request reaches nobody."""
        user = request.output_rate_line.user.name
        lost = self.ledger.lose(request.request_id, user)
        if lost and self.recorder:
            ns = time.monotonic_ns()
            self.recorder.event("lost", ns, user=user, req=request.request_id, n=lost, why=why)

    def finish(self, request: Request) -> None:
        if self.recorder:
            self._ended.append((request.request_id, request.status.name))
            if not (self._delivering or self.ledger.flights):  # no output to wait for
                self._note_ended(time.monotonic_ns())

    def _note_ended(self, ns: int) -> None:
        assert self.recorder is not None
        for request_id, status in self._ended:
            user, tokens = self._user.pop(request_id, None), self._tokens.pop(request_id, 0)
            self.recorder.event(
                "finish", ns, user=user, req=request_id, status=status, tokens=tokens
            )
        if self._ended:
            self._ended.clear()
            self.recorder.flush()  # perhaps the last event for long

    def throttled(self, user: str, ready_ns: int) -> None:
        if self.recorder:
            self.recorder.event("throttled", self.now_ns, user=user, ready_ns=ready_ns)

    def rate(self, user: str | None, rate: RateLike | None, ns: int) -> None:
        """The user's rate, or with no user the default, is another one from ``ns`` on."""
        if self.recorder:
            shown = None if rate is None else str(parse_rate(rate))
            self.recorder.event("rate", ns, user=user, rate=shown)

    def wait(self, start_ns: int, end_ns: int, woke: str) -> None:
        if self.recorder:
            self.recorder.event("wait", start_ns, end_ns=end_ns, woke=woke)
            self.recorder.flush()

    def close(self) -> None:
        if self.recorder:
            self.recorder.close()
