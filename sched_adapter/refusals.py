"""Which configurations are refused together with limits, and why.

Some are refused since the account would be wrong, some since no test holds them. Each rule
looks at the settings (parsed flags or EngineArgs: the same names), where those decide, and at
the finished VllmConfig, where the model or the platform does. Names are vLLM 0.32.0's; a name
that another version lacks is not set there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from sched_adapter.parsing import shown

SCHEDULER: Final = "sched_adapter.scheduler.OutputRateScheduler"
"""The scheduler's dotted name, as SchedulerConfig.scheduler_cls takes it."""


@dataclass(frozen=True)
class Rule:
    """One refusal.

    Args:
        what: what is refused, in words.
        why: the reason.
        settings: from flags or EngineArgs, (flag, value) of each setting that asks for it.
        config: whether a VllmConfig has it.
        mend: what to do, where it is not simply leaving the flag out.
    """

    what: str
    why: str
    settings: Callable[[Any], Iterator[tuple[str, object]]]
    config: Callable[[Any], bool]
    mend: str = ""


def _given(*names: str) -> Callable[[Any], Iterator[tuple[str, object]]]:
    """Settings that ask for it as soon as they are given."""

    def look(settings: Any) -> Iterator[tuple[str, object]]:
        for name in names:
            value = getattr(settings, name, None)
            if value is not None and value is not False:
                yield _flag(name), value

    return look


def _above_one(name: str) -> Callable[[Any], Iterator[tuple[str, object]]]:
    def look(settings: Any) -> Iterator[tuple[str, object]]:
        value = getattr(settings, name, None)
        if isinstance(value, int) and value > 1:
            yield _flag(name), value

    return look


def _nothing(settings: Any) -> Iterator[tuple[str, object]]:
    yield from ()


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _at(vllm_config: Any, path: str) -> Any:
    for name in path.split("."):
        vllm_config = getattr(vllm_config, name, None)
    return vllm_config


def _is_set(path: str) -> Callable[[Any], bool]:
    return lambda vllm_config: _at(vllm_config, path) is not None


def _is_true(path: str) -> Callable[[Any], bool]:
    return lambda vllm_config: bool(_at(vllm_config, path))


def _exceeds_one(path: str) -> Callable[[Any], bool]:
    return lambda vllm_config: (_at(vllm_config, path) or 1) > 1


def _pooling(settings: Any) -> Iterator[tuple[str, object]]:
    if getattr(settings, "runner", None) == "pooling":
        yield "--runner", "pooling"
    if getattr(settings, "convert", None) not in (None, "auto", "none"):
        yield "--convert", settings.convert


def _another_scheduler(settings: Any) -> Iterator[tuple[str, object]]:
    value = getattr(settings, "scheduler_cls", None)
    if value is not None and value != SCHEDULER:
        yield "--scheduler-cls", value


def _aux_output(settings: Any) -> Iterator[tuple[str, object]]:
    yield from _given("enable_return_routed_experts")(settings)
    if _at(settings, "aux_output_config.enabled"):
        yield "--aux-output-config", settings.aux_output_config


def _encoder_cache_manager(settings: Any) -> Iterator[tuple[str, object]]:
    value = getattr(settings, "ec_manager_config", None)
    name = (
        value.get("encoder_cache_manager_cls")
        if isinstance(value, dict)
        else getattr(value, "encoder_cache_manager_cls", None)
    )
    if name is not None:
        yield "--ec-manager-config", name


def _rust_front_end(settings: Any) -> Iterator[tuple[str, object]]:
    value = os.environ.get("VLLM_USE_RUST_FRONTEND", "")
    if value not in ("", "0"):
        yield "VLLM_USE_RUST_FRONTEND", value


_COVERED: Final = "pausing, preemption and refund are proven for decoders with attention only"

RULES: Final = (
    Rule(
        "speculative decoding",
        "a step can yield several tokens where one is charged",
        _given("speculative_config", "spec_method", "spec_model", "spec_tokens"),
        _is_set("speculative_config"),
    ),
    Rule(
        "data parallelism",
        "each rank has a scheduler and a limiter of its own, so a user would get its quota "
        "several times",
        _above_one("data_parallel_size"),
        _exceeds_one("parallel_config.data_parallel_size"),
        "give 1 and put a gateway in front that keeps each user on one engine",
    ),
    Rule(
        "elastic expert parallelism",
        "it adds data parallel ranks at run time, each with a limiter of its own",
        _given("enable_elastic_ep"),
        _is_true("parallel_config.enable_elastic_ep"),
    ),
    Rule(
        "pipeline parallelism",
        "several batches are in flight at once, for which scheduling and preemption are not proven",
        _above_one("pipeline_parallel_size"),
        _exceeds_one("parallel_config.pipeline_parallel_size"),
        "give 1, or tensor parallelism, which has one scheduler",
    ),
    Rule(
        "a pooling model",
        "it generates no tokens that could be limited",
        _pooling,
        lambda config: _at(config, "model_config.runner_type") not in (None, "generate"),
    ),
    Rule(
        "a diffusion model",
        "it settles a block of tokens over several steps, where one token a step is charged",
        _given("diffusion_config"),
        lambda config: (
            _is_set("diffusion_config")(config) or _is_true("model_config.is_diffusion")(config)
        ),
    ),
    Rule(
        "an encoder-decoder model", _COVERED, _nothing, _is_true("model_config.is_encoder_decoder")
    ),
    Rule("an attention-free model", _COVERED, _nothing, _is_true("model_config.is_attention_free")),
    Rule("a hybrid model", _COVERED, _nothing, _is_true("model_config.is_hybrid")),
    Rule(
        "multimodal input",
        f"{_COVERED}, not for encoder inputs",
        _nothing,
        _is_true("model_config.supports_multimodal_inputs"),
        "run the model text-only with --language-model-only",
    ),
    Rule(
        "KV offload",
        "it changes when a request's KV blocks live and die",
        _given("kv_offloading_size"),
        _is_set("cache_config.kv_offloading_size"),
    ),
    Rule(
        "a KV connector",
        "it changes when a request's KV blocks live and die",
        _given("kv_transfer_config"),
        _is_set("kv_transfer_config"),
    ),
    Rule(
        "an encoder-cache connector",
        "it changes when a request is ready to be scheduled",
        _given("ec_transfer_config"),
        _is_set("ec_transfer_config"),
    ),
    Rule(
        "an encoder-cache manager",
        "it takes part in scheduling, and that is not proven",
        _encoder_cache_manager,
        _is_set("ec_manager_config.encoder_cache_manager_cls"),
    ),
    Rule(
        "an auxiliary-output connector",
        "it takes part in what a step schedules and frees, and that is not proven",
        _aux_output,
        _is_true("aux_output_config.enabled"),
    ),
    Rule(
        "another scheduler",
        "the limits are kept by a scheduler of their own",
        _another_scheduler,
        lambda config: _at(config, "scheduler_config.scheduler_cls") not in (None, SCHEDULER),
    ),
    Rule(
        "a limit on queued requests",
        "the requests of one user out of quota would fill it and turn everybody else away",
        _given("max_num_queued_reqs", "max_num_queued_tokens"),
        lambda config: (
            _is_set("scheduler_config.max_num_queued_reqs")(config)
            or _is_set("scheduler_config.max_num_queued_tokens")(config)
        ),
        "leave it out and bound the queue of each user at the gateway",
    ),
    Rule(
        "the Rust front end",
        "it bypasses the Python checks of who a request belongs to",
        _rust_front_end,
        lambda config: any(_rust_front_end(None)),
    ),
)


def of_settings(settings: Any) -> str | None:
    """Why limits are refused with these flags or EngineArgs, in one line; None if they are not."""
    for rule in RULES:
        for flag, value in rule.settings(settings):
            mend = rule.mend or "leave it out"
            return (
                f"{flag} {shown(value)}: {rule.what} does not go with output rate limits, since "
                f"{rule.why}: {mend}, or start without limits"
            )
    return None


def of_config(vllm_config: Any) -> str | None:
    """Why limits are refused with this VllmConfig, in one line; None if they are not."""
    for rule in RULES:
        if rule.config(vllm_config):
            mend = f"{rule.mend}, or start" if rule.mend else "start"
            return (
                f"{rule.what} does not go with output rate limits, since {rule.why}: "
                f"{mend} without limits"
            )
    return None
