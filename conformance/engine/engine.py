"""A vLLM engine without a model and without real time, at depth 1 or true depth 2."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import RequestStatus

from conformance.engine.clock import ManualClock
from conformance.engine.config import make_vllm_config
from conformance.engine.contract import STOCK, UNLIMITED, Account, Limits, SchedulerContract
from conformance.engine.model import EOS, ScriptedModel
from conformance.engine.observe import History, RequestLog, StepLog, digest
from conformance.engine.reference import expected_output
from conformance.engine.requests import RequestFactory
from conformance.engine.runner import Batch, EngineFault, ScriptedRunner

__all__ = ["ScriptedEngine"]


class _InFlight(NamedTuple):
    output: Any
    batch: Batch
    result: Any
    turns: dict[str, int]
    """request id -> turns it had ended when it was dispatched."""


class ScriptedEngine:
    """vLLM's scheduler and KV cache manager in the engine core's loop, with a scripted model.

    `contract` makes the scheduler, `limits` go to it. `depth` 1 handles a step's output before
    the next is scheduled; 2 schedules the next one first, as step_with_batch_queue does
    (v1/engine/core.py:698 in 0.32.0). Async scheduling is on iff depth is 2, unless
    `async_scheduling` says otherwise. `step_ns` is the default length of a step.
    `**config` goes to `make_vllm_config`.
    """

    def __init__(
        self,
        contract: SchedulerContract = STOCK,
        limits: Limits = UNLIMITED,
        *,
        depth: int = 1,
        clock: ManualClock | None = None,
        step_ns: int = 10_000_000,
        model_seed: int = 0,
        async_scheduling: bool | None = None,
        check_kv: bool = True,
        keep_digests: bool = False,
        keep_steps: int | None = None,
        keep_instants: bool = True,
        observe: Callable[[StepLog], None] | None = None,
        **config: Any,
    ) -> None:
        if depth not in (1, 2):
            raise ValueError(f"depth={depth}: 1 or 2")
        self.depth = depth
        self.clock = ManualClock() if clock is None else clock
        self.step_ns = step_ns
        self.contract = contract
        self.vllm_config = make_vllm_config(
            async_scheduling=depth == 2 if async_scheduling is None else async_scheduling, **config
        )
        self.scheduler = contract.make(self.vllm_config, limits, self.clock)
        self.model = ScriptedModel(model_seed)
        self.history = History(keep_steps, keep_instants)
        self.requests: dict[str, RequestLog] = {}
        scheduler_config = self.vllm_config.scheduler_config
        self.runner = ScriptedRunner(
            self.model,
            block_size=self.vllm_config.cache_config.block_size,
            max_num_seqs=scheduler_config.max_num_seqs,
            max_num_batched_tokens=scheduler_config.max_num_batched_tokens,
            lora_slots=config.get("lora_slots", 0),
            check_kv=check_kv,
        )
        self._factory = RequestFactory(self.vllm_config)
        self._queue: deque[_InFlight] = deque()
        self._aborts: list[str] = []
        self._steps = 0
        self._observe = observe
        self._keep_digests = keep_digests
        self._free_at_start = self.free_blocks

    # Requests

    def add(
        self,
        request_id: str,
        *,
        user: Any = None,
        prompt: int | Sequence[int] = 4,
        max_tokens: int = 8,
        n: int = 1,
        eos_at: int | None = None,
        stop_at: tuple[int, int] | None = None,
        stop_token_ids: Sequence[int] = (),
        ignore_eos: bool = False,
        seed: int | None = None,
        grammar: int | Future[Any] | None = None,
        resumable: bool = False,
        **options: Any,
    ) -> list[str]:
        """Send a request; returns the ids of the engine's requests (several iff n > 1).

        `prompt` is a list of tokens, or a length: then its tokens follow from the id. `eos_at` is
        the index in the output (0 is its first token) at which the model says EOS; `stop_at` is
        (index, token) for a stop token. `grammar` is the length of a scripted grammar's output
        before its EOS, or a Future of a ScriptedGrammar still compiling. Further `options`:
        priority, lora, cache_salt, min_tokens, extra_args. ValueError if the id was used before.
        """
        tokens = self.model.prompt(prompt, request_id) if isinstance(prompt, int) else prompt
        script: dict[int, int] = {}
        if eos_at is not None:
            script[len(tokens) + eos_at] = EOS
        stops = list(stop_token_ids)
        if stop_at is not None:
            script[len(tokens) + stop_at[0]] = stop_at[1]
            stops.append(stop_at[1])
        ids = [request_id] if n == 1 else [f"{i}_{request_id}" for i in range(n)]
        for index, child in enumerate(ids):
            if child in self.requests:
                raise ValueError(f"request id {child!r} was used before; take another")
            child_seed = seed if n == 1 or seed is None else seed + index
            request = self._factory.make(
                child,
                user=user,
                prompt=tokens,
                max_tokens=max_tokens,
                stop_token_ids=stops,
                ignore_eos=ignore_eos,
                seed=child_seed,
                grammar=grammar,
                resumable=resumable,
                **options,
            )
            self.runner.scripts[child] = script
            self.requests[child] = RequestLog(
                child,
                user,
                list(tokens),
                max_tokens,
                stops=tuple(stops) if ignore_eos else (EOS, *stops),
                script=script,
                sampling_seed=child_seed,
                grammar=grammar if isinstance(grammar, int) else None,
                resumable=resumable,
                arrival_ns=self.clock(),
            )
            self.scheduler.add_request(request)
        return ids

    def feed(self, request_id: str, prompt: Sequence[int], *, max_tokens: int = 8) -> None:
        """The next input of a streaming session (one added with resumable=True)."""
        log = self.requests[request_id]
        self.scheduler.add_request(
            self._factory.make(
                request_id, user=log.user, prompt=prompt, max_tokens=max_tokens, resumable=True
            )
        )

    def close(self, request_id: str) -> None:
        """End a streaming session: no more input comes."""
        log = self.requests[request_id]
        self.scheduler.add_request(
            self._factory.make(request_id, user=log.user, prompt=[1], max_tokens=1)
        )
        self._end_if_gone(log)

    def abort(self, *request_ids: str, in_flight: bool = False) -> None:
        """Abort now; with `in_flight`, in the next step, between its dispatch and its output."""
        if in_flight:
            self._aborts.extend(request_ids)
            return
        for request_id in request_ids:
            self._finish(self.requests[request_id], "abort")
        self.scheduler.finish_requests(list(request_ids), RequestStatus.FINISHED_ABORTED)

    def pause(self, *, new_only: bool = False) -> None:
        """Pause scheduling: of everything, or of requests not yet running."""
        self.scheduler.set_pause_state(PauseState.PAUSED_NEW if new_only else PauseState.PAUSED_ALL)

    def resume(self) -> None:
        self.scheduler.set_pause_state(PauseState.UNPAUSED)

    def reset_prefix_cache(self, *, running_too: bool = True) -> bool:
        """Forget the prefix cache; `running_too` preempts everything first. True if it worked."""
        return self.scheduler.reset_prefix_cache(reset_running_requests=running_too)

    # Time

    def step(self, dt_ns: int | None = None) -> StepLog:
        """One call of the engine core's step function, which lasts `dt_ns`.

        schedule() runs at the instant before, the output is handled after `dt_ns` have passed. At
        depth 2 it is the output of the step before; the step that fills an empty pipeline takes
        its time too. With nothing to do, only time passes.
        """
        log = StepLog(self._steps, self.clock())
        self._steps += 1
        dt = self.step_ns if dt_ns is None else dt_ns
        if self.depth == 1:
            self._step_alone(log, dt)
        else:
            self._step_queued(log, dt)
        self.history.add(log)
        if self._observe is not None:
            self._observe(log)
        return log

    def run(self, steps: int, dt_ns: int | None = None) -> list[StepLog]:
        return [self.step(dt_ns) for _ in range(steps)]

    def run_for(self, duration_ns: int, dt_ns: int | None = None) -> list[StepLog]:
        """Step until `duration_ns` have passed since the call."""
        end = self.clock() + duration_ns
        steps = []
        while self.clock() < end:
            steps.append(self.step(dt_ns))
        return steps

    def drain(self, max_steps: int = 10_000, dt_ns: int | None = None) -> int:
        """Step until nothing is left, the pipeline included; returns the steps it took.

        EngineFault after `max_steps`: something is stuck.
        """
        for taken in range(max_steps):
            if not self.busy:
                return taken
            self.step(dt_ns)
        left = [log.id for log in self.requests.values() if not log.finished]
        raise EngineFault(f"after {max_steps} steps unfinished: {left[:10]} of {len(left)}")

    # What there is to see

    @property
    def busy(self) -> bool:
        return bool(self._queue) or self.scheduler.has_requests()

    @property
    def free_blocks(self) -> int:
        return self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()

    def expected(self, request_id: str) -> list[int]:
        """The whole output that this request has in an unlimited run."""
        return expected_output(self.model, self.requests[request_id], self.max_model_len)

    @property
    def max_model_len(self) -> int:
        return self.vllm_config.model_config.max_model_len

    def accounts(self) -> dict[str, Account]:
        """The scheduler's own ledger; {} if its contract has none."""
        ledger = self.contract.ledger
        return {} if ledger is None else dict(ledger(self.scheduler))

    def leaks(self) -> list[str]:
        """What a drained engine still holds, in words; [] is clean."""
        s = self.scheduler
        held = {
            "KV blocks": self._free_at_start - self.free_blocks,
            "requests": len(s.requests),
            "running": len(s.running),
            "waiting": len(s.waiting) + len(s.kv_holding_waiting),
            "deferred": len(s.deferred_waiting),
            "sessions": s.num_waiting_for_streaming_input,
            "prefills": len(s._inflight_prefills),
            "worker states": len(self.runner),
            "steps in flight": len(self._queue),
        }
        return [f"{name}: {count}" for name, count in held.items() if count]

    # The loop

    def _step_alone(self, log: StepLog, dt: int) -> None:
        if not self.scheduler.has_requests():
            log.idle = True
            self.clock.advance(dt)
            return
        output = self.scheduler.schedule()
        batch, turns = self._dispatch(log, output)
        result = self.runner.sample(batch, self.scheduler.get_grammar_bitmask(output))
        self.clock.advance(dt)
        self._handle(log, _InFlight(output, batch, result, turns))

    def _step_queued(self, log: StepLog, dt: int) -> None:
        deferred = None
        if self.scheduler.has_requests():
            output = self.scheduler.schedule()
            batch, turns = self._dispatch(log, output)
            if output.pending_structured_output_tokens:
                # The mask needs tokens of the step in flight: sample after those are handled.
                deferred = (output, batch, turns)
            else:
                grammar = self.scheduler.get_grammar_bitmask(output) if batch.request_ids else None
                result = self.runner.sample(batch, grammar)
                self._queue.append(_InFlight(output, batch, result, turns))
                if len(self._queue) < self.depth and (
                    batch.request_ids or self.scheduler.has_requests()
                ):
                    self.clock.advance(dt)
                    return
        else:
            log.idle = True
        self.clock.advance(dt)
        if not self._queue:
            return
        self._handle(log, self._queue.popleft())
        if deferred is not None:
            output, batch, turns = deferred
            result = self.runner.sample(batch, self.scheduler.get_grammar_bitmask(output))
            self._queue.append(_InFlight(output, batch, result, turns))

    def _dispatch(self, log: StepLog, output: Any) -> tuple[Batch, dict[str, int]]:
        if self._keep_digests:
            log.digest = digest(output)
        batch = self.runner.execute(output)
        log.scheduled = dict(output.num_scheduled_tokens)
        log.sampled = batch.samples
        log.admitted = tuple(n.req_id for n in output.scheduled_new_reqs)
        log.resumed = tuple(sorted(output.scheduled_cached_reqs.resumed_req_ids))
        log.preempted = tuple(sorted(output.preempted_req_ids or ()))
        for new in output.scheduled_new_reqs:
            request = self.requests[new.req_id]
            request.next_position = len(new.prompt_token_ids)
            if request.admitted_ns is None:
                request.admitted_ns = log.now_ns
        for request_id in log.preempted:
            self.requests[request_id].preemptions += 1
        turns: dict[str, int] = {}
        for request_id in batch.samples:
            request = self.requests[request_id]
            request.dispatch_ns.append(log.now_ns)
            turns[request_id] = len(request.turns)
            self.history.dispatched(request.user, log.now_ns)
        return batch, turns

    def _handle(self, log: StepLog, step: _InFlight) -> None:
        if self._aborts:
            gone, self._aborts = self._aborts, []
            self.abort(*gone)
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
                why = self._why_lost(request, step.turns[request_id])
                log.lost[request_id] = why
                request.lost[why] += 1
                tally.lost[why] += 1
        for request_id, out in outputs.items():
            request = self.requests[request_id]
            if out.new_token_ids and request_id not in step.batch.samples:
                raise EngineFault(f"{request_id}: tokens {out.new_token_ids} nobody sampled")
            if out.finish_reason is not None:
                self._turn_over(log, request, out)

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
            start = sum(len(tokens) for _, tokens in request.turns)
            request.turns.append((reason, request.tokens[start:]))
            if request.id in self.scheduler.requests:
                return
        request.stop_reason = out.stop_reason
        self._finish(request, reason)
        log.finished[request.id] = reason

    def _end_if_gone(self, request: RequestLog) -> None:
        # A session closed between two turns ends without an output.
        if request.id not in self.scheduler.requests and not request.finished:
            self._finish(request, request.turns[-1][0])

    def _finish(self, request: RequestLog, reason: str) -> None:
        if not request.finished:
            request.finish_reason = reason
            request.finish_ns = self.clock()

    @staticmethod
    def _why_lost(request: RequestLog, turns_then: int) -> str:
        if request.finish_reason in ("abort", "error"):
            return request.finish_reason
        if request.finished or len(request.turns) > turns_then:
            return "lookahead"
        return "stale"
