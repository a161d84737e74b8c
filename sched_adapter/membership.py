"""Coming and going: a request joins its user's line, takes a place, gives it up, leaves.

Between steps stock vLLM (0.32.0) moves requests through the methods overridden
here; each does what stock does and keeps the lines, the places and the books.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from sched_adapter import config, identity
from sched_adapter.admission import AdmissionQueue
from sched_adapter.books import Books
from sched_adapter.clock import StepClock
from sched_adapter.guard import guarded
from sched_adapter.record import Recorder
from sched_adapter.residents import Residents
from sched_adapter.steptime import StepTime
from sched_adapter.turns import Line, Turns

# A mixin: its other base, to come after it, is one of vLLM's schedulers.
if TYPE_CHECKING:
    from vllm.v1.core.sched.scheduler import Scheduler as _Stock
else:
    _Stock = object

logger = logging.getLogger("vllm.output_rate")

_WHY_LOST = {RequestStatus.FINISHED_ABORTED: "abort", RequestStatus.FINISHED_ERROR: "error"}


class Membership(_Stock):
    """Who is where: ``turns`` (lines of users), ``residents`` (places), the waiting queues."""

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(vllm_config, *args, **kwargs)
        limits = config.of(vllm_config) or config.OutputRateConfig()
        self.limiter = guarded(limits.make_limiter(), limits.on_fault)
        self.fail_open = limits.on_fault == "open"
        self.books = Books(_recorder(limits))
        self.step_time = StepTime(limits.burst_ns, silent="auto_burst" in limits.options)
        self._clock = StepClock(time.monotonic_ns)
        self.turns: Turns[Request] = Turns()
        self.residents = Residents()
        self.waiting = AdmissionQueue(self.policy, _line_of)
        self.kv_holding_waiting = AdmissionQueue(self.policy, _line_of)
        self._ended_displaced: list[Request] = []  # sessions to put back after the output

    def add_request(self, request: Request) -> None:
        if request.request_id not in self.requests:
            self._join(request)
        super().add_request(request)

    def _join(self, request: Request) -> None:
        """Read the request's identity, once, and give it its line."""
        name = identity.user_of(request)
        level = request.priority if self.policy == SchedulingPolicy.PRIORITY else 0
        request.output_rate_line = self.turns.join(name, level, self._is_limited)
        self.books.join(request.request_id, name)

    def _is_limited(self, user: str) -> bool:
        return self.limiter.rate_of(user) is not None

    def _leave_place(self, request: Request) -> int | None:
        """The request is resident no more; the step that served it last, if it was."""
        self.residents.vacate(request)
        served: int | None = request.output_rate_line.residents.pop(request, None)
        return served

    def _leave(self, line: Line[Request]) -> None:
        if self.turns.leave(line):
            self.books.ledger.leave(line.user.name)

    def _preempt_throttled(self, request: Request) -> None:
        request.output_rate_line.admit = 0  # it does not come back in the same step
        if request in self.running:  # it takes no part in this step, but stock may count it
            self.running.remove(request)
        self._preempt_request(request, time.monotonic())

    def _preempt_request(
        self, request: Request, timestamp: float, drop_stale_output: bool = False
    ) -> None:
        served = self._leave_place(request)
        self.residents.displace(request)
        if drop_stale_output or (request.drop_stale_output and request.num_stale_output_tokens):
            self.books.lose(request, "stale")
        super()._preempt_request(request, timestamp, drop_stale_output=drop_stale_output)
        if served is not None:
            request.output_rate_line.since.appendleft(served)

    def _handle_stopped_request(self, request: Request) -> bool:
        if not request.resumable:  # it is freed next, and leaves there
            return bool(super()._handle_stopped_request(request))
        displaced = request not in self.residents
        self._leave_place(request)
        self.books.lose(request, "lookahead")
        if displaced:
            self.waiting.remove_request(request)  # its next input may be of another line
        finished: bool = super()._handle_stopped_request(request)
        if displaced and not finished:
            self._ended_displaced.append(request)
        return finished

    def _put_back_sessions(self) -> None:
        """Stock takes who was preempted when its turn ended out of the queue, sessions too.

        Up to 0.32 it takes them out last; 0.33 puts them back itself.
        """
        for session in self._ended_displaced:
            known = self.requests.get(session.request_id) is session
            if known and session not in self.waiting:
                self._enqueue_waiting_request(session)
        self._ended_displaced.clear()

    def _update_request_as_session(self, session: Request, update: Any) -> None:
        displaced = not session.num_computed_tokens
        if displaced:  # stock keeps what is computed: what was, before it was preempted
            session.num_computed_tokens = session.num_tokens - 1
        super()._update_request_as_session(session, update)
        if displaced:
            session.num_computed_tokens = 0
        line = session.output_rate_line
        if identity.user_of(session) != line.user.name:
            self._join(session)
            self._leave(line)
        for queue in (self.waiting, self.kv_holding_waiting):
            queue.rouse(session)

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        self._leave_place(request)
        self.books.lose(request, _WHY_LOST.get(request.status, "lookahead"))
        freed = super()._free_request(request, *args, **kwargs)
        self.books.finish(request)
        self._leave(request.output_rate_line)
        return freed

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        if scheduler_output.total_num_scheduled_tokens:
            self.step_time.end(self._clock.peek())
        self.books.deliver(scheduler_output)
        outputs: dict[int, EngineCoreOutputs] = super().update_from_output(
            scheduler_output, model_runner_output
        )
        self._put_back_sessions()
        self.books.delivered(outputs)
        return outputs

    def shutdown(self) -> None:
        self.books.close()
        super().shutdown()

    def get_request_counts(self) -> tuple[int, int]:
        return len(self.residents), len(self.waiting) + len(self.kv_holding_waiting)

    def reset_prefix_cache(self, *args: Any, **kwargs: Any) -> bool:
        self.running = self.residents.everyone()
        reset: bool = super().reset_prefix_cache(*args, **kwargs)
        return reset


def _line_of(request: Request) -> Line[Request]:
    line: Line[Request] = request.output_rate_line
    return line


def _recorder(limits: config.OutputRateConfig) -> Recorder | None:
    if limits.record_path is None:
        return None
    facts = limits.to_json()
    keys = ("limiter", "burst_ns", "window_ns", "default_rate", "rates")
    recorder = Recorder(limits.record_path, {key: facts[key] for key in keys})
    if recorder.error:
        logger.warning(
            "The output rate record %s cannot be written (%s); the engine runs without it. "
            "Give --output-rate-record a file in a folder that exists.",
            limits.record_path,
            recorder.error.strerror,
        )
        return None
    return recorder
