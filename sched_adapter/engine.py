"""The engine loop's part: wait while users are out of quota, spare the worker empty steps.

Everything here asks the engine's scheduler first. One without `output_rate_wait_s` is not ours:
its engine runs as stock, at the price of an attribute look-up a step. Places are vLLM 0.32.0's,
`C:` is `vllm/v1/engine/core.py`.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from vllm.v1.engine import EngineCoreRequestType
from vllm.v1.engine.core import EngineCore, EngineCoreProc
from vllm.v1.engine.core_client import InprocClient
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT

MAX_WAIT_S: Final = 0.050
"""Longest wait in seconds (design article): what nobody announces is looked for this often."""

_WAKE_UP: Final = (EngineCoreRequestType.WAKEUP, None)


def install() -> None:
    """Put the wait, the wake-ups and the filter for empty steps into vLLM's engine classes.

    Idempotent. Engines made before or after take part, if their scheduler is ours; all three
    methods are looked up on the class at each call.

    Raises:
        AttributeError: this vLLM lacks a method that is wrapped here; nothing was changed.
    """
    places: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
        (EngineCoreProc, "_process_engine_step", _step_then_wait),
        (InprocClient, "get_output", _output_then_sleep),
        (EngineCore, "preprocess_add_request", _announce_grammar),
    )
    stock_methods = [getattr(owner, name) for owner, name, _ in places]
    for (owner, name, around), stock in zip(places, stock_methods, strict=True):
        if not hasattr(stock, "_output_rate"):
            setattr(owner, name, _wrapped(stock, around))


def _wrapped(stock: Callable[..., Any], around: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def method(self: Any, *args: Any) -> Any:
        return around(stock, self, *args)

    method._output_rate = True  # type: ignore[attr-defined]
    return method


def _step_then_wait(stock: Callable[..., bool], engine: Any) -> bool:
    """Around `EngineCoreProc._process_engine_step` (C:1603): the step's outputs are sent by then.

    Stock polls every millisecond here when nothing ran; after our wait that is once in 50 ms.
    """
    if not _is_ours(engine):
        return stock(engine)
    idle = _nothing_in_flight(engine)
    executed = stock(engine)
    if idle and not executed:
        _wait(engine, functools.partial(_wait_for_input, engine.input_queue))
    return executed


def _output_then_sleep(stock: Callable[..., Any], client: Any) -> Any:
    """Around `InprocClient.get_output`: no input queue, nobody else to serve, so plain sleep."""
    engine = client.engine_core
    if not _is_ours(engine):
        return stock(client)
    idle = _nothing_in_flight(engine)
    result = stock(client)
    if idle and not result.outputs:  # the caller gets what there is before any sleep
        _wait(engine, time.sleep)
    return result


def _announce_grammar(stock: Callable[..., Any], engine: Any, request: Any) -> Any:
    """Around `EngineCore.preprocess_add_request` (C:1089), which starts compiling a grammar.

    A grammar finishes on a thread that tells nobody: the scheduler finds out when it next looks.
    So have it post the message that stock itself posts to end a wait at shutdown (C:1449), which
    the loop takes and ignores (C:1678). In the queue it cannot be lost, even if the grammar is
    ready between the scheduler's look and our wait.
    """
    added = stock(engine, request)
    structured = added[0].structured_output_request
    # `_grammar`, since the property `grammar` hides the future until it is done.
    grammar = structured and structured._grammar
    inbox = getattr(engine, "input_queue", None)  # the in-process engine has none
    if isinstance(grammar, Future) and inbox is not None and _is_ours(engine):
        grammar.add_done_callback(lambda _done: inbox.put_nowait(_WAKE_UP))
    return added


def _is_ours(engine: Any) -> bool:
    """Whether the engine's scheduler limits output; its executor is spared empty steps then."""
    if not hasattr(engine.scheduler, "output_rate_wait_s"):
        return False
    executor = engine.model_executor
    if "execute_model" not in vars(executor):
        # On the instance: one of our engines must not change other engines' executors.
        executor.execute_model = functools.partial(_execute_unless_empty, executor.execute_model)
    return True


def _execute_unless_empty(execute: Callable[..., Any], output: Any, non_block: bool = False) -> Any:
    """Answer a step that gives the worker nothing to do without the worker.

    Sent on, it would keep the worker's shared-memory reader spinning for a second
    (shm_broadcast.py:138). Both model runners return this same output for an empty step, and
    lose nothing by not seeing it: to them the steps before and after become neighbours.
    `update_from_output` still gets its call, for the news it sends beside tokens.
    """
    if output.total_num_scheduled_tokens or _tells_worker(output):
        return execute(output, non_block=non_block)
    if not non_block:
        return EMPTY_MODEL_RUNNER_OUTPUT
    done: Future[Any] = Future()
    done.set_result(EMPTY_MODEL_RUNNER_OUTPUT)
    return done


def _tells_worker(output: Any) -> bool:
    """Whether a `SchedulerOutput` without tokens carries anything else, known to us or not.

    Finished or preempted requests, blocks to zero or copy, connectors' metadata: any field set
    counts, so that a field which a later vLLM adds is delivered rather than swallowed. The
    CachedRequestData object is always there, and empty whenever no token is scheduled.
    """
    return any(value for name, value in vars(output).items() if name != "scheduled_cached_reqs")


def _nothing_in_flight(engine: Any) -> bool:
    """Whether no batch with tokens is under way. To be asked before the step.

    Under async scheduling the queue always holds some batch, mostly an empty one while throttled,
    hence the look at the tokens. A batch that is in flight when the step begins may be finished
    by the step, after `schedule()` has looked (C:751): seats, blocks and finished requests that
    it frees may let somebody run now, so the scheduler has to look again before anyone waits.
    """
    return not any(
        output.total_num_scheduled_tokens for _future, output, _exec in engine.batch_queue or ()
    )


def _wait_for_input(inbox: Any, seconds: float) -> bool:
    """Wait until the input queue holds something, taking nothing off; whether it does.

    Requests, aborts, utility calls, a dead executor, shutdown: stock announces all of them there.
    """
    with inbox.not_empty:
        return bool(inbox.not_empty.wait_for(inbox._qsize, seconds))


def _wait(engine: Any, pause: Callable[[float], bool | None]) -> None:
    """Let `pause` pass the time until the next quota, if the scheduler says that is the reason.

    Where quota is all that anybody waits for, a step in between could only cost: then the engine
    looks up every 50 ms and waits on. In a caller's own process it goes back to the caller.
    """
    scheduler = engine.scheduler
    if not scheduler.has_requests():  # paused or aborted since: its last word is out of date
        return
    while (seconds := min(scheduler.output_rate_wait_s(), MAX_WAIT_S)) > 0:
        start_ns = time.monotonic_ns()
        woken = pause(seconds)
        if hasattr(scheduler, "note_wait"):
            woke = "request" if woken else "ready" if seconds < MAX_WAIT_S else "timeout"
            scheduler.note_wait(start_ns, time.monotonic_ns(), woke)
        if woken is not False or not getattr(scheduler, "only_quota_is_awaited", False):
            return
