"""How a fault is planted: the project's scheduler with one thing changed, and who must object."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from conformance.engine import ADAPTER, SchedulerContract


@dataclass(frozen=True)
class Fault:
    name: str
    caught_by: tuple[str, ...]
    """Every one of these rules must reject it."""
    contract: SchedulerContract


def fault(*caught_by: str):
    """Plant a change of a ready scheduler as a fault; it is named after the function."""

    def plant(change: Callable[[Any], None]) -> Fault:
        def make(vllm_config, limits, clock):
            scheduler = ADAPTER.make(vllm_config, limits, clock)
            change(scheduler)
            return scheduler

        name = change.__name__.replace("_", "-")
        return Fault(name, caught_by, SchedulerContract(name, make, ADAPTER.ledger))

    return plant


def around(thing: Any, name: str):
    """Replace a method of one object by a function that gets the original first."""

    def replace(new: Callable[..., Any]) -> None:
        setattr(thing, name, functools.partial(new, getattr(thing, name)))

    return replace


class Limiter:
    """Stands before a scheduler's limiter; what is set on it goes before the limiter's own."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return len(self.inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def own_limiter(scheduler: Any) -> Limiter:
    """Put a `Limiter` before the scheduler's, where it is used."""
    limiter = Limiter(scheduler.limiter)
    scheduler.limiter = scheduler.settlement.limiter = limiter
    return limiter


def renew(scheduler: Any) -> None:
    """Give everybody a full quota."""
    from sched_adapter import config

    limiter = scheduler.limiter
    while isinstance(limiter, Limiter):
        limiter = limiter.inner
    fresh = config.of(scheduler.vllm_config).make_limiter()
    scheduler.limiter = scheduler.settlement.limiter = fresh


def each_sampled(scheduler: Any, step: Any, output: Any) -> list[Any]:
    """The requests of limited users that sample a token in this output."""
    requests = [scheduler.requests[name] for name in output.num_scheduled_tokens]
    return [r for r in requests if not r.is_prefill_chunk and r.output_rate_line.user.limited]


def charge(scheduler: Any, step: Any, request: Any) -> None:
    user = request.output_rate_line.user.name
    if scheduler.limiter.try_take(user, step.now_ns):
        scheduler.books.take(user, 1)


def give_back(scheduler: Any, now_ns: int, request: Any) -> None:
    user = request.output_rate_line.user
    if user.limited:
        scheduler.limiter.refund(user.name, now_ns)
        scheduler.books.refund(user.name, 1)
