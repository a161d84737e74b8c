"""Every name of vLLM that this package leans on, with its shape, checked before limits start.

vLLM promises none of them to stay. A missing or reshaped one is found here, in one line at
start, and not as an exception in the engine's loop. All of it exists, in this shape, in
vLLM 0.31.0, 0.32.0 and 0.33.0; 0.30.0 lacks some.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Iterator
from typing import Any, Final

# What register() itself needs: without these there are no flags and no refusal either.
FRONT: Final = {
    "vllm.engine.arg_utils:EngineArgs.add_cli_args": "parser",
    "vllm.engine.arg_utils:EngineArgs.from_cli_args": "cls args",
    "vllm.engine.arg_utils:EngineArgs.create_engine_config": "self",
    "vllm.engine.arg_utils:EngineArgs(field)": "additional_config scheduler_cls",
    "vllm.utils.argparse_utils:FlexibleArgumentParser.parse_args": "self args namespace",
}

# A function's value: its leading parameters. A class with "(field)": fields of the dataclass.
# A function with "(uses)": names that its code reads or writes, for attributes that exist on
# instances only.
ENGINE: Final = {
    # config, plugin
    "vllm.config.scheduler:SchedulerConfig(field)": "scheduler_cls async_scheduling policy",
    "vllm.config.scheduler:SchedulerConfig.get_scheduler_cls": "self",
    # doors
    "vllm.v1.engine.input_processor:InputProcessor._validate_params": "self params",
    "vllm.v1.engine.input_processor:InputProcessor.__init__(uses)": "vllm_config",
    "vllm.v1.engine.async_llm:AsyncLLM.generate": "self prompt sampling_params",
    "vllm.entrypoints.generate.beam_search.online:BeamSearchOnlineMixin.beam_search": "self",
    "vllm.entrypoints.generate.beam_search.offline:BeamSearchOfflineMixin.beam_search": "self",
    "vllm.exceptions:VLLMValidationError": "message parameter",
    # scheduler
    "vllm.v1.core.sched.async_scheduler:AsyncScheduler": "args",
    "vllm.v1.core.sched.scheduler:Scheduler._reserve_prefill_lookahead": (
        "self request num_computed_tokens num_new_tokens"
    ),
    "vllm.v1.core.sched.scheduler:Scheduler.schedule": "self throttle_prefills",
    "vllm.v1.core.sched.scheduler:Scheduler.schedule(uses)": (
        "running waiting max_num_active_reqs _reserve_prefill_lookahead "
        "_handle_blocked_waiting_request _preempt_request"
    ),
    "vllm.v1.core.sched.scheduler:Scheduler.__init__(uses)": (
        "running waiting requests max_num_running_reqs max_num_active_reqs num_prefill_lookahead "
        "kv_cache_manager scheduler_config policy"
    ),
    "vllm.v1.core.sched.scheduler:Scheduler._handle_blocked_waiting_request": "self request",
    "vllm.v1.core.sched.scheduler:Scheduler._preempt_request": "self request timestamp",
    "vllm.v1.core.sched.scheduler:Scheduler.add_request": "self request",
    "vllm.v1.core.sched.scheduler:Scheduler._update_request_as_session": "self session update",
    "vllm.v1.core.sched.scheduler:Scheduler._free_request": "self request",
    "vllm.v1.core.sched.scheduler:Scheduler.update_from_output": (
        "self scheduler_output model_runner_output"
    ),
    "vllm.v1.core.sched.output:SchedulerOutput(field)": (
        "num_scheduled_tokens total_num_scheduled_tokens scheduled_cached_reqs"
    ),
    "vllm.v1.core.kv_cache_manager:KVCacheManager.allocate_slots": "self request num_new_tokens",
    "vllm.v1.request:Request.__init__(uses)": "sampling_params",
    "vllm.sampling_params:SamplingParams": "",
    # engine
    "vllm.v1.engine.core:EngineCoreProc._process_engine_step": "self",
    "vllm.v1.engine.core:EngineCoreProc.__init__(uses)": "input_queue",
    "vllm.v1.engine.core:EngineCore.__init__(uses)": "scheduler model_executor batch_queue",
    "vllm.v1.engine.core:EngineCore.preprocess_add_request": "self request",
    "vllm.v1.engine.core_client:InprocClient.get_output": "self",
    "vllm.v1.engine:EngineCoreRequestType.WAKEUP": "",
    "vllm.v1.outputs:EMPTY_MODEL_RUNNER_OUTPUT": "",
}


def problems(table: dict[str, str] | None = None) -> list[str]:
    """What of the surface is missing or has another shape, one line each.

    Imports what it checks. Never raises: a module that cannot be imported is a problem like
    any other.
    """
    found: list[str] = []
    for path, wanted in (FRONT | ENGINE if table is None else table).items():
        try:
            found += _differences(path, wanted.split())
        except Exception as error:
            found.append(f"{path} ({type(error).__name__})")
    return found


def _differences(path: str, wanted: list[str]) -> Iterator[str]:
    dotted, _, kind = path.partition("(")
    target = _resolve(dotted)
    if kind == "field)":
        has = {field.name for field in dataclasses.fields(target)}
    elif kind == "uses)":
        code = target.__code__
        has = {*code.co_names, *code.co_varnames, *_inner_names(code)}
    elif not wanted:
        return
    else:
        names = [name for name in inspect.signature(target).parameters if name != "kwargs"]
        if names[: len(wanted)] != wanted:
            yield f"{path} takes ({', '.join(names)}), not ({', '.join(wanted)}, ...)"
        return
    for name in wanted:
        if name not in has:
            yield f"{dotted} has no {name}"


def _inner_names(code: Any) -> Iterator[str]:
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            yield from constant.co_names
            yield from _inner_names(constant)


def _resolve(dotted: str) -> Any:
    module, _, names = dotted.partition(":")
    target: Any = importlib.import_module(module)
    for name in names.split("."):
        target = inspect.getattr_static(target, name)
        if isinstance(target, staticmethod | classmethod):
            # unbound, so that `self`, `cls` and `parser` are all visible
            target = target.__func__
    return inspect.unwrap(target) if callable(target) else target
