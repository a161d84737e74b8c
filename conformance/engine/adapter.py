"""The project's own scheduler as a SchedulerContract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.engine.contract import Limits, SchedulerContract

__all__ = ["ADAPTER"]


def _make(vllm_config: Any, limits: Limits, clock: Callable[[], int]) -> Any:
    from conformance.engine.config import build_scheduler
    from limiters import parse_rate
    from sched_adapter import config
    from sched_adapter.scheduler import OutputRateScheduler

    options = dict(limits.options)
    default = limits.default_rate
    config.attach(
        vllm_config,
        config.OutputRateConfig(
            default_rate=None if default is None else parse_rate(default),
            rates={user: parse_rate(rate) for user, rate in limits.rates.items()},
            limiter=limits.limiter,
            burst_ns=limits.burst_ns,
            window_ns=options.pop("window_ns", None),
            options=options,
        ),
    )
    return build_scheduler(OutputRateScheduler, vllm_config, clock)


ADAPTER = SchedulerContract("adapter", _make)
