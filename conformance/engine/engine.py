"""A vLLM engine without a model and without real time, at depth 1 or true depth 2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from vllm.v1.core.sched.interface import PauseState

from conformance.engine.clock import ManualClock
from conformance.engine.config import make_vllm_config
from conformance.engine.contract import STOCK, UNLIMITED, Ledger, Limits, SchedulerContract
from conformance.engine.loop import EngineLoop
from conformance.engine.model import EOS, ScriptedModel
from conformance.engine.observe import History, RequestLog, StepLog
from conformance.engine.reference import expected_output
from conformance.engine.requests import RequestFactory
from conformance.engine.runner import EngineFault, ScriptedRunner

__all__ = ["ScriptedEngine"]


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
        self._loop = EngineLoop(
            self.scheduler,
            self.runner,
            self.clock,
            self.history,
            depth=depth,
            keep_digests=keep_digests,
        )
        self.requests: dict[str, RequestLog] = self._loop.requests
        self._steps = 0
        self._observe = observe
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
        before its EOS, or a Future of a ScriptedGrammar still compiling. A `user` that is no str is
        sent as it is and counted under None. Further `options`: priority, lora, cache_salt,
        min_tokens, extra_args. ValueError if the id was used before.
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
                user if isinstance(user, str) else None,
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
        log = self._session(request_id)
        self.scheduler.add_request(
            self._factory.make(
                request_id, user=log.user, prompt=prompt, max_tokens=max_tokens, resumable=True
            )
        )
        log.inputs.append((list(prompt), max_tokens))

    def close(self, request_id: str) -> None:
        """End a streaming session: no more input comes."""
        log = self._session(request_id)
        self.scheduler.add_request(
            self._factory.make(request_id, user=log.user, prompt=[1], max_tokens=1)
        )
        # Between two turns it ends at once and without an output.
        if request_id not in self.scheduler.requests:
            log.finish(log.turns[-1][0], self.clock())

    def _session(self, request_id: str) -> RequestLog:
        log = self.requests[request_id]
        if not log.resumable or log.finished:
            raise ValueError(f"{request_id!r} is no open session; add it with resumable=True")
        return log

    def abort(self, *request_ids: str, in_flight: bool = False) -> None:
        """Abort now; with `in_flight`, in the next step, between its dispatch and its output."""
        if in_flight:
            self._loop.late_aborts.extend(request_ids)
        else:
            self._loop.abort(list(request_ids))

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
        self._loop.step(log, self.step_ns if dt_ns is None else dt_ns)
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
        return bool(self._loop.queue) or self.scheduler.has_requests()

    @property
    def free_blocks(self) -> int:
        return self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()

    def in_flight(self, user: str | None) -> int:
        """Sampled tokens of this user that are dispatched and not yet handled, counted afresh."""
        return sum(
            self.requests[request_id].user == user
            for step in self._loop.queue
            for request_id in step.batch.samples
        )

    def expected(self, request_id: str) -> list[int]:
        """The whole output of this request in an unlimited run, a session's over all turns."""
        return expected_output(self.model, self.requests[request_id], self.max_model_len)

    @property
    def max_model_len(self) -> int:
        return self.vllm_config.model_config.max_model_len

    def ledger(self) -> Ledger | None:
        """The scheduler's own books; None if its contract has none."""
        read = self.contract.ledger
        return None if read is None else read(self.scheduler)

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
            "steps in flight": len(self._loop.queue),
        }
        return [f"{name}: {count}" for name, count in held.items() if count]
