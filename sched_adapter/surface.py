"""Every name of vLLM that this package leans on, with its shape, checked before limits start.

vLLM promises none of them to stay. A missing or reshaped one is found here, in one line at
start, and not as an exception in the engine's loop. Shapes are vLLM 0.32.0's.
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

# By the kind of path:
# - a callable: its leading parameters;
# - "(parameters)": parameters that it has, wherever;
# - "(field)": fields of a dataclass;
# - "(uses)": names in a function's code, for attributes that only instances have;
# - nothing wanted: it exists.
_SCHED: Final = "vllm.v1.core.sched"
_KV: Final = "vllm.v1.core.kv_cache_manager:KVCacheManager"
_COORDINATOR: Final = "vllm.v1.core.kv_cache_coordinator:KVCacheCoordinator"

ENGINE: Final = {
    # plugin, refusals
    "vllm.config.scheduler:SchedulerConfig(field)": (
        "scheduler_cls async_scheduling policy enable_chunked_prefill long_prefill_token_threshold"
    ),
    "vllm.config.scheduler:SchedulerConfig.get_scheduler_cls": "self",
    # doors
    "vllm.v1.engine.input_processor:InputProcessor._validate_params": "self params",
    "vllm.v1.engine.input_processor:InputProcessor.__init__(uses)": "vllm_config",
    "vllm.v1.engine.async_llm:AsyncLLM.generate": "self prompt sampling_params",
    "vllm.v1.engine.async_llm:AsyncLLM.__init__(uses)": "vllm_config",
    "vllm.entrypoints.openai.responses.serving:"
    "OpenAIServingResponses._generate_with_builtin_tools": (
        "self request_id engine_input sampling_params"
    ),
    "vllm.entrypoints.generate.beam_search.online:BeamSearchOnlineMixin.beam_search": "self",
    "vllm.entrypoints.generate.beam_search.offline:BeamSearchOfflineMixin.beam_search": "self",
    "vllm.exceptions:VLLMValidationError": "message parameter",
    # identity
    "vllm.v1.request:Request.__init__(uses)": (
        "sampling_params num_computed_tokens num_prompt_tokens status priority block_hashes "
        "is_prefill_chunk drop_stale_output num_stale_output_tokens "
        "structured_output_request"
    ),
    "vllm.v1.request:Request.num_tokens": "",
    "vllm.v1.request:RequestStatus.RUNNING": "",
    # scheduler, membership
    "vllm.config.device:DeviceConfig(field)": "device_type",
    f"{_SCHED}.interface:PauseState.PAUSED_ALL": "",
    f"{_SCHED}.async_scheduler:AsyncScheduler": "args",
    f"{_SCHED}.scheduler:Scheduler.__init__": "self vllm_config",
    f"{_SCHED}.scheduler:Scheduler.__init__(uses)": (
        "running waiting kv_holding_waiting requests policy kv_cache_manager scheduler_config "
        "max_num_running_reqs max_num_active_reqs max_num_scheduled_tokens max_model_len "
        "num_prefill_lookahead num_waiting_for_streaming_input lora_config _pause_state "
        "adaptive_long_prefill_threshold"
    ),
    f"{_SCHED}.scheduler:Scheduler.schedule": "self throttle_prefills",
    f"{_SCHED}.scheduler:Scheduler.schedule(uses)": (
        "running waiting kv_holding_waiting max_num_active_reqs max_num_running_reqs "
        "allocate_slots _reserve_prefill_lookahead _handle_blocked_waiting_request _preempt_request"
    ),
    f"{_SCHED}.scheduler:Scheduler._reserve_prefill_lookahead": (
        "self request num_computed_tokens num_new_tokens"
    ),
    f"{_SCHED}.scheduler:Scheduler._handle_blocked_waiting_request": "self request",
    f"{_SCHED}.scheduler:Scheduler._preempt_request": "self request timestamp drop_stale_output",
    f"{_SCHED}.scheduler:Scheduler._handle_stopped_request": "self request",
    f"{_SCHED}.scheduler:Scheduler._update_request_as_session": "self session update",
    f"{_SCHED}.scheduler:Scheduler._enqueue_waiting_request": "self request",
    f"{_SCHED}.scheduler:Scheduler._free_request": "self request",
    f"{_SCHED}.scheduler:Scheduler.add_request": "self request",
    f"{_SCHED}.scheduler:Scheduler.update_from_output": (
        "self scheduler_output model_runner_output"
    ),
    f"{_SCHED}.scheduler:Scheduler.get_request_counts": "self",
    f"{_SCHED}.scheduler:Scheduler.reset_prefix_cache": "self",
    f"{_SCHED}.scheduler:Scheduler.shutdown": "self",
    f"{_SCHED}.output:SchedulerOutput(field)": (
        "num_scheduled_tokens total_num_scheduled_tokens scheduled_new_reqs scheduled_cached_reqs"
    ),
    f"{_SCHED}.output:CachedRequestData(field)": "resumed_req_ids",
    f"{_SCHED}.output:NewRequestData(field)": "req_id",
    # admission
    f"{_SCHED}.request_queue:SchedulingPolicy.PRIORITY": "",
    f"{_SCHED}.request_queue:RequestQueue.add_request": "self request",
    f"{_SCHED}.request_queue:RequestQueue.pop_request": "self",
    f"{_SCHED}.request_queue:RequestQueue.peek_request": "self",
    f"{_SCHED}.request_queue:RequestQueue.prepend_request": "self request",
    f"{_SCHED}.request_queue:RequestQueue.prepend_requests": "self requests",
    f"{_SCHED}.request_queue:RequestQueue.remove_request": "self request",
    f"{_SCHED}.request_queue:RequestQueue.remove_requests": "self requests",
    # pressure
    f"{_KV}.__init__(uses)": (
        "coordinator block_pool max_model_len watermark_blocks empty_kv_cache_blocks"
    ),
    f"{_KV}.allocate_slots": "self request num_new_tokens",
    f"{_KV}.allocate_slots(parameters)": (
        "num_new_computed_tokens new_computed_blocks num_lookahead_tokens "
        "num_external_computed_tokens num_encoder_tokens full_sequence_must_fit reserved_blocks "
        "has_scheduled_reqs"
    ),
    f"{_KV}.get_blocks": "self request_id",
    f"{_KV}.prefix_cache_lookup_enabled": "self request",
    f"{_COORDINATOR}.find_longest_cache_hit": "self block_hashes max_cache_hit_length",
    f"{_COORDINATOR}.get_num_blocks_to_allocate(parameters)": (
        "request_id num_tokens new_computed_blocks num_encoder_tokens total_computed_tokens "
        "num_local_computed_tokens num_tokens_main_model apply_admission_cap prefill_end"
    ),
    "vllm.v1.core.block_pool:BlockPool.get_num_free_blocks": "self",
    # books
    "vllm.v1.engine:EngineCoreOutputs": "",
    "vllm.v1.outputs:ModelRunnerOutput": "",
    # engine
    "vllm.v1.engine.core:EngineCoreProc._process_engine_step": "self",
    "vllm.v1.engine.core:EngineCoreProc.__init__(uses)": "input_queue",
    "vllm.v1.engine.core:EngineCore.__init__(uses)": "scheduler model_executor batch_queue",
    "vllm.v1.engine.core:EngineCore.preprocess_add_request": "self request",
    "vllm.v1.engine.core:EngineCoreProc._handle_client_request(uses)": "WAKEUP",
    "vllm.v1.engine.core:EngineCore.step(uses)": "execute_model",
    "vllm.v1.engine.core:EngineCore.step_with_batch_queue(uses)": "execute_model batch_queue",
    "vllm.v1.executor.abstract:Executor.execute_model": "self scheduler_output non_block",
    "vllm.v1.core.sched.scheduler:Scheduler.has_requests": "self",
    "vllm.v1.structured_output.request:StructuredOutputRequest(field)": "_grammar",
    "vllm.v1.engine.core_client:InprocClient.__init__(uses)": "engine_core",
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
    elif kind == "parameters)":
        has = set(inspect.signature(target).parameters)
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
