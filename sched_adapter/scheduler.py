"""vLLM's scheduler with an output rate per user: one step, and what has to follow it.

``schedule()`` tells the step: read the clock, settle who may be served, let
stock (vLLM 0.32.0) schedule over them, charge what was dispatched and give the
rest back.  What the answer rests on is next door: ``settlement`` (who may),
``turns`` (in which order), ``stock_pass`` (what stock sees meanwhile),
``membership`` (who comes and goes), ``books``.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from limiters.rate import RateLike
from sched_adapter.clock import StepClock
from sched_adapter.ledger import Ledger
from sched_adapter.residents import limited_users
from sched_adapter.step import Step
from sched_adapter.stock_pass import SchedulingPass
from sched_adapter.turns import Line, User

#: The engine never waits longer than this for quota, in seconds (design article).
MAX_WAIT_S = 0.050

#: Users without debt are forgotten this often, in ns of the step clock.
_CLEANUP_EVERY_NS = 1_000_000_000


class OutputRateScheduler(SchedulingPass):
    """Name this one as ``scheduler_cls``: it is sync or async as the config says."""

    def __new__(cls, vllm_config: Any, *args: Any, **kwargs: Any) -> OutputRateScheduler:
        if cls is OutputRateScheduler:
            is_async = vllm_config.scheduler_config.async_scheduling
            cls = AsyncOutputRateScheduler if is_async else SyncOutputRateScheduler
        return object.__new__(cls)

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(vllm_config, *args, **kwargs)
        self._next_cleanup_ns: int | None = None
        self._idle_until_ns: int | None = None

    # One step

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        self._idle_until_ns = None
        if self._pause_state == PauseState.PAUSED_ALL:
            return super().schedule(*args, **kwargs)
        now_ns = self.books.now_ns = self._clock.read()
        self._tell_time(now_ns)
        step = self.settlement.settle(now_ns, self._free_places())
        with self._only_those_in(step):
            output = super().schedule(*args, **kwargs)
        self._charge_dispatched(step, output)
        self._send_to_sleep(step)
        if not output.total_num_scheduled_tokens:
            self._idle_until_ns = self.turns.next_alarm_ns()
        return output

    def _tell_time(self, now_ns: int) -> None:
        """Wake users whose quota is back; let the limiter know how time has passed."""
        step_ns = self.step_time.begin(now_ns)
        if step_ns:
            self.limiter.end_step(now_ns - step_ns, now_ns)
        for line in self.turns.wake(now_ns):
            self._reopen(line)
        if self._next_cleanup_ns is None or now_ns >= self._next_cleanup_ns:
            self._next_cleanup_ns = now_ns + _CLEANUP_EVERY_NS
            self.limiter.cleanup_idle_users(now_ns)

    def _reopen(self, line: Line[Request]) -> None:
        self.waiting.reopen(line)
        self.kv_holding_waiting.reopen(line)

    def _charge_dispatched(self, step: Step, output: SchedulerOutput) -> None:
        """Book what was dispatched; what was taken for it and not used is refunded here."""
        admitted = self._seat_admitted(step, output)
        if step.everybody or step.taken is not None:
            used, chunks = self._account_all(step, output, admitted)
        else:
            used, chunks = self._account(step, self._in_turn(step, output, admitted))
        for user in step.asked:
            user.left = 0
        for user in step.failed_open:
            user.left = 0
            self.ledger.failed_open += used[user.name]
        taken = step.taken
        if taken is None:
            taken = Counter({user.name: user.granted for user in step.asked})
        if used is not taken and not dict.__eq__(taken, used):
            used = self._refund_unused(step, taken, used)
        self.books.dispatch(step.number, output, chunks, used, self.requests)

    def _refund_unused(self, step: Step, taken: Counter[str], used: Counter[str]) -> Counter[str]:
        """Give back what no dispatched request samples; returns the tokens used, by user."""
        for name, tokens in taken.items():
            unused = tokens - used[name]
            if unused > 0:
                self.turns.users[name].short = False  # it could not use even what it had
                for _ in range(unused):
                    self.limiter.refund(name, step.now_ns)
                self.books.refund(name, unused)
        return Counter({name: used[name] for name in taken if used[name]})

    def _seat_admitted(self, step: Step, output: SchedulerOutput) -> list[Request]:
        new, resumed = output.scheduled_new_reqs, output.scheduled_cached_reqs.resumed_req_ids
        if not (new or resumed):
            return []
        ids = {each.req_id for each in new} | resumed
        # In the order of admission, as in stock's running; the ids of those resumed are a set.
        admitted = [self.requests[i] for i in output.num_scheduled_tokens if i in ids]
        for request in admitted:
            line = request.output_rate_line
            line.residents[request] = step.number
            if line.since:
                line.since.popleft()
            self.residents.seat(request)
        return admitted

    def _account_all(
        self, step: Step, output: SchedulerOutput, admitted: list[Request]
    ) -> tuple[Counter[str], set[str]]:
        """No turns were dealt: tokens by user, and the prompt chunks that sample nothing."""
        scheduled = output.num_scheduled_tokens
        chunks = set()
        for request in [*admitted, *self.residents.prefilling]:
            if request.request_id in scheduled:
                if request.is_prefill_chunk:
                    chunks.add(request.request_id)
                self.residents.advance(request)
        for request in list(self.residents.owed):
            if request.request_id in scheduled and request.request_id not in chunks:
                del self.residents.owed[request]
        if step.everybody:
            self.turns.caught_up = step.number
        if not (step.asked or step.taken or step.failed_open):
            return Counter(), chunks
        if step.taken and len(scheduled) == step.present and not (chunks or admitted):
            return step.taken, chunks  # each of those asked for, and nobody else
        sampling = list(map(self.requests.__getitem__, scheduled.keys() - chunks))
        return Counter(limited_users(sampling)), chunks

    def _in_turn(
        self, step: Step, output: SchedulerOutput, admitted: list[Request]
    ) -> list[Request]:
        """What was dispatched in the order of turns, so that streams served together keep it."""
        dispatched = dict.fromkeys(map(self.requests.__getitem__, output.num_scheduled_tokens))
        newcomers: dict[Line[Request], deque[Request]] = {}
        for request in admitted:
            newcomers.setdefault(request.output_rate_line, deque()).append(request)
        in_turn = []
        for line, pick in step.dealt:
            if pick is None and newcomers.get(line):
                pick = newcomers[line].popleft()
            if pick in dispatched:
                del dispatched[pick]
                in_turn.append(pick)
        return [*in_turn, *dispatched]

    def _account(self, step: Step, dispatched: list[Request]) -> tuple[Counter[str], set[str]]:
        """The same where turns were dealt, so that those served go to the end of their line."""
        used: Counter[str] = Counter()
        chunks = set()
        for request in dispatched:
            line = request.output_rate_line
            if not request.is_prefill_chunk:
                used[line.user.name] += 1
                line.serve(request, step.number)
                self.residents.owed.pop(request, None)
            else:
                chunks.add(request.request_id)
                if step.crowded:
                    line.serve(request, step.number)
            self.residents.advance(request)
        if step.crowded:
            served = set(dispatched)
            for line, pick in step.dealt:
                if pick is None or pick in served:
                    self.turns.to_the_end(line)
        for line in step.open:
            if line.admit:
                line.pass_over(line.admit, step.number)
        return used, chunks

    def _send_to_sleep(self, step: Step) -> None:
        """Nobody asks for a user again who has used all that it could get."""
        for user in step.asked:
            if user.short:
                ready_ns = self.limiter.ready_at_ns(user.name, step.now_ns)
                self.turns.sleep(user, ready_ns)
                self.books.throttled(user.name, ready_ns)

    # Changes while it runs: between two steps, on the engine's thread

    def set_rate(self, user: str, rate: RateLike | None) -> None:
        """Give the user a rate of its own in tokens/s from now on; None: the default again.

        Raises as the limiter does, TypeError or ValueError, before anything is changed.
        """
        now_ns = self._clock.read()
        if rate is None:
            self.limiter.unset_rate(user, now_ns)
        else:
            self.limiter.set_rate(user, rate, now_ns)
        self.books.rate(user, rate, now_ns)
        if user in self.turns.users:
            self._relimit(self.turns.users[user])

    def set_default_rate(self, rate: RateLike | None) -> None:
        """Set the rate in tokens/s of users without one of their own; None: unlimited."""
        now_ns = self._clock.read()
        self.limiter.set_default_rate(rate, now_ns)
        self.books.rate(None, rate, now_ns)
        for user in self.turns.users.values():
            self._relimit(user)

    def _relimit(self, user: User[Request]) -> None:
        """The limiter has another rate for this user, or may have: ask again in the next step."""
        self.residents.relimit()
        for line in self.turns.relimit(user, self._is_limited(user.name)):
            self._reopen(line)
        self._idle_until_ns = None

    # What the engine, tests and operators ask

    def output_rate_wait_s(self) -> float:
        """Seconds, at most 0.05, that the engine may wait since the last step ran nothing."""
        if self._idle_until_ns is None:
            return 0.0
        return min(MAX_WAIT_S, max(0, self._idle_until_ns - self._clock.peek()) / 1e9)

    @property
    def only_quota_is_awaited(self) -> bool:
        """Whether every user here is out of quota: until then only a message changes anything."""
        return self.turns.asleep == len(self.turns.users)

    def note_wait(self, start_ns: int, end_ns: int, woke: str) -> None:
        """The engine waited from ``start_ns`` to ``end_ns``, until ``woke``."""
        self.books.wait(start_ns, end_ns, woke)

    @property
    def clock(self) -> Callable[[], int]:
        """Where time comes from: a callable that gives monotonic ns."""
        return self._clock.source

    @clock.setter
    def clock(self, source: Callable[[], int]) -> None:
        self._clock = StepClock(source)

    @property
    def ledger(self) -> Ledger:
        return self.books.ledger

    def _free_places(self) -> int:
        waiting = len(self.waiting) + len(self.kv_holding_waiting)
        if not waiting:
            return 0
        if self._pause_state != PauseState.UNPAUSED and not self.kv_holding_waiting:
            return 0  # nothing waiting may be admitted, so none has a turn
        held = len(self.residents) + self.num_waiting_for_streaming_input
        return max(0, min(self.max_num_running_reqs - held, waiting))


class SyncOutputRateScheduler(OutputRateScheduler, Scheduler):
    """Over stock ``Scheduler``."""


class AsyncOutputRateScheduler(OutputRateScheduler, AsyncScheduler):
    """Over stock ``AsyncScheduler``."""
