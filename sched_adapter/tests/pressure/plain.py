"""The limiter without anything around it: GCRA asked for each request, in list order.

What one writes first. It keeps every user's bound, and shows what that alone is not: places,
turns and the queue go to whoever stands in front.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from conformance.engine import Limits, SchedulerContract, build_scheduler
from limiters import Limiter, make_limiter
from sched_adapter.identity import user_of


class _Plain(Scheduler):
    """Stock's scheduling; a request that would sample without quota gets nothing."""

    limiter: Limiter
    clock: Callable[[], int]

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        self._now_ns = self.clock()
        self._taken: dict[str, str] = {}
        output = super().schedule(*args, **kwargs)
        for request_id, user in self._taken.items():
            if request_id not in output.num_scheduled_tokens:
                self.limiter.refund(user, self._now_ns)
        return output

    def _reserve_prefill_lookahead(self, request: Request, computed: int, new: int) -> int:
        new = super()._reserve_prefill_lookahead(request, computed, new)
        if not new or computed + new < request.num_tokens:
            return new
        user = user_of(request)
        if not self.limiter.try_take(user, self._now_ns):
            return 0
        self._taken[request.request_id] = user
        return new


class _PlainAsync(_Plain, AsyncScheduler):
    pass


def _make(vllm_config: Any, limits: Limits, clock: Callable[[], int]) -> Any:
    cls = _PlainAsync if vllm_config.scheduler_config.async_scheduling else _Plain
    scheduler = build_scheduler(cls, vllm_config)
    scheduler.clock = clock
    scheduler.limiter = make_limiter(
        limits.limiter,
        default_rate=limits.default_rate,
        rates=limits.rates,
        burst_ns=limits.burst_ns,
        **limits.options,
    )
    return scheduler


PLAIN = SchedulerContract("plain", _make)
