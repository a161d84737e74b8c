"""The engine core's step function, once for depth 1 and once with a batch queue.

Follows EngineCore.step and step_with_batch_queue (v1/engine/core.py:657 and :698 in 0.32.0), and
keeps the books of what was dispatched, handed out and lost.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from vllm.v1.request import RequestStatus

from conformance.engine.clock import ManualClock
from conformance.engine.observe import History, RequestLog, StepLog, digest
from conformance.engine.runner import Batch, EngineFault, ScriptedRunner

__all__ = ["EngineLoop"]


class _InFlight(NamedTuple):
    output: Any
    batch: Batch
    result: Any
    turns: dict[str, int]
    """request id -> turns that a session had ended when the step was dispatched."""


class EngineLoop:
    """Steps one scheduler; `requests` and `history` are filled as it goes."""

    def __init__(
        self,
        scheduler: Any,
        runner: ScriptedRunner,
        clock: ManualClock,
        history: History,
        *,
        depth: int,
        keep_digests: bool,
    ) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self.clock = clock
        self.history = history
        self.depth = depth
        self.keep_digests = keep_digests
        self.requests: dict[str, RequestLog] = {}
        self.queue: deque[_InFlight] = deque()
        self.late_aborts: list[str] = []
        """Aborts that arrive while the step runs: handled before its output."""

    def step(self, log: StepLog, dt_ns: int) -> None:
        """Run one step that lasts `dt_ns` and write what happened to `log`."""
        if self.depth == 1:
            self._step_alone(log, dt_ns)
        else:
            self._step_queued(log, dt_ns)
        # With no output to handle, an abort is read from the input queue instead.
        self._take_late_aborts()

    def abort(self, request_ids: list[str]) -> None:
        for request_id in request_ids:
            self.requests[request_id].finish("abort", self.clock())
        self.scheduler.finish_requests(request_ids, RequestStatus.FINISHED_ABORTED)

    def _take_late_aborts(self) -> None:
        if self.late_aborts:
            gone, self.late_aborts = self.late_aborts, []
            self.abort(gone)

    def _step_alone(self, log: StepLog, dt_ns: int) -> None:
        if not self.scheduler.has_requests():
            log.idle = True
            self.clock.advance(dt_ns)
            return
        output = self.scheduler.schedule()
        batch, turns = self._dispatch(log, output)
        step = self._sample(output, batch, turns)
        self.clock.advance(dt_ns)
        self._handle(log, step)

    def _step_queued(self, log: StepLog, dt_ns: int) -> None:
        deferred: tuple[Any, Batch, dict[str, int]] | None = None
        if self.scheduler.has_requests():
            output = self.scheduler.schedule()
            batch, turns = self._dispatch(log, output)
            if output.pending_structured_output_tokens:
                # The mask needs tokens of the step in flight: sample after those are handled.
                deferred = (output, batch, turns)
            else:
                self.queue.append(self._sample(output, batch, turns))
                if len(self.queue) < self.depth and (
                    batch.request_ids or self.scheduler.has_requests()
                ):
                    self.clock.advance(dt_ns)
                    return
        else:
            log.idle = True
        self.clock.advance(dt_ns)
        if self.queue:
            self._handle(log, self.queue.popleft())
        if deferred is not None:
            self.queue.append(self._sample(*deferred))

    def _dispatch(self, log: StepLog, output: Any) -> tuple[Batch, dict[str, int]]:
        if self.keep_digests:
            log.digest = digest(output)
        batch = self.runner.execute(output)
        requests = self.requests
        log.scheduled = dict(output.num_scheduled_tokens)
        log.sampled = batch.samples
        if output.scheduled_new_reqs:
            log.admitted = tuple(n.req_id for n in output.scheduled_new_reqs)
            for new in output.scheduled_new_reqs:
                request = requests[new.req_id]
                request.next_position = len(new.prompt_token_ids)
                if request.admitted_ns is None:
                    request.admitted_ns = log.now_ns
        log.resumed = tuple(sorted(output.scheduled_cached_reqs.resumed_req_ids))
        if output.preempted_req_ids:
            log.preempted = tuple(sorted(output.preempted_req_ids))
            for request_id in log.preempted:
                requests[request_id].preemptions += 1
        turns: dict[str, int] = {}
        for request_id in batch.samples:
            request = requests[request_id]
            request.dispatch_ns.append(log.now_ns)
            turns[request_id] = len(request.turns)
            self.history.dispatched(request.user, log.now_ns)
        return batch, turns

    def _sample(self, output: Any, batch: Batch, turns: dict[str, int]) -> _InFlight:
        grammar = self.scheduler.get_grammar_bitmask(output) if batch.request_ids else None
        return _InFlight(output, batch, self.runner.sample(batch, grammar), turns)

    def _handle(self, log: StepLog, step: _InFlight) -> None:
        self._take_late_aborts()
        outputs: dict[str, Any] = {}
        for client in self.scheduler.update_from_output(step.output, step.result).values():
            for out in client.outputs:
                outputs[out.request_id] = out
        for request_id, position in step.batch.samples.items():
            request = self.requests[request_id]
            tally = self.history.tallies[request.user]
            out = outputs.get(request_id)
            if out is not None and out.new_token_ids:
                self._deliver(log, request, position, out.new_token_ids)
                tally.delivered += 1
            else:
                why = _why_lost(request, step.turns[request_id])
                log.lost[request_id] = why
                request.lost[why] += 1
                tally.lost[why] += 1
        for request_id, out in outputs.items():
            if out.new_token_ids and request_id not in step.batch.samples:
                raise EngineFault(f"{request_id}: tokens {out.new_token_ids} nobody sampled")
            if out.finish_reason is not None:
                self._turn_over(log, self.requests[request_id], out)

    def _deliver(self, log: StepLog, request: RequestLog, position: int, tokens: list[int]) -> None:
        if request.finished:
            raise EngineFault(f"{request.id}: token after its end ({request.finish_reason})")
        if len(tokens) != 1 or position != request.next_position:
            raise EngineFault(
                f"{request.id}: got {tokens} for position {position}, due was one token for "
                f"position {request.next_position}"
            )
        request.next_position += 1
        request.tokens.append(tokens[0])
        request.token_ns.append(self.clock())
        log.delivered[request.id] = tokens[0]

    def _turn_over(self, log: StepLog, request: RequestLog, out: Any) -> None:
        reason = str(out.finish_reason)
        if request.resumable:
            request.end_turn(reason)
            if request.id in self.scheduler.requests:
                return
        request.stop_reason = out.stop_reason
        request.finish(reason, self.clock())
        log.finished[request.id] = reason


def _why_lost(request: RequestLog, turns_then: int) -> str:
    if request.finish_reason in ("abort", "error"):
        return request.finish_reason
    if request.finished or len(request.turns) > turns_then:
        return "lookahead"
    return "stale"
