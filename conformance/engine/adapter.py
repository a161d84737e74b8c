"""The project's own scheduler as a SchedulerContract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.engine.contract import Account, Ledger, Limits, SchedulerContract

__all__ = ["ADAPTER"]


def _make(vllm_config: Any, limits: Limits, clock: Callable[[], int]) -> Any:
    from conformance.engine.config import build_scheduler
    from sched_adapter import config
    from sched_adapter.scheduler import OutputRateScheduler

    options = dict(limits.options)
    # It parses and checks rates itself, and wants the window apart from a backend's options.
    limited = config.OutputRateConfig(
        default_rate=limits.default_rate,  # type: ignore[arg-type]
        rates=limits.rates,  # type: ignore[arg-type]
        limiter=limits.limiter,
        burst_ns=limits.burst_ns,
        window_ns=options.pop("window_ns", None),
        options=options,
    )
    config.attach(vllm_config, limited)
    return build_scheduler(OutputRateScheduler, vllm_config, clock)


def _ledger(scheduler: Any) -> Ledger:
    books = scheduler.ledger
    return Ledger(
        {user: Account(a.charged, a.refunded) for user, a in books.accounts.items()},
        Account(books.departed.charged, books.departed.refunded),
    )


ADAPTER = SchedulerContract("adapter", _make, _ledger)
