"""What a scheduler hands in to be held to level 2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

__all__ = ["STOCK", "UNLIMITED", "Account", "Ledger", "Limits", "SchedulerContract"]

Rate = int | float | str | Fraction


@dataclass(frozen=True)
class Limits:
    """The limits of one run, in tokens per second.

    `default_rate` is for every user without one in `rates`; None leaves them unlimited.
    `limiter` names a backend, `burst_ns` is its burst in ns, `options` are the backend's own
    (for the rolling window: `window_ns`).
    """

    default_rate: Rate | None = None
    rates: Mapping[str, Rate] = field(default_factory=dict)
    limiter: str = "gcra"
    burst_ns: int = 100_000_000
    options: Mapping[str, Any] = field(default_factory=dict)


UNLIMITED = Limits()


class Account(NamedTuple):
    """What a scheduler says of one user: tokens charged and tokens refunded."""

    charged: int = 0
    refunded: int = 0


class Ledger(NamedTuple):
    """A scheduler's own books, since its start."""

    accounts: Mapping[str, Account]
    """The users it still keeps an account of."""
    closed: Account = Account()
    """The sum over accounts that it has closed."""

    @property
    def net(self) -> int:
        """Tokens charged and not refunded, over all users."""
        every = (self.closed, *self.accounts.values())
        return sum(account.charged - account.refunded for account in every)


@dataclass(frozen=True)
class SchedulerContract:
    """A scheduler under test.

    `make(vllm_config, limits, clock)` returns a ready scheduler that applies `limits` and reads
    time from `clock` alone, a callable that gives monotonic ns; `build_scheduler` does the rest.
    `ledger(scheduler)` gives its books; without it charges are judged from SchedulerOutput.
    """

    name: str
    make: Callable[[Any, Limits, Callable[[], int]], Any]
    ledger: Callable[[Any], Ledger] | None = None


def _make_stock(vllm_config: Any, limits: Limits, clock: Callable[[], int]) -> Any:
    from conformance.engine.config import build_scheduler

    return build_scheduler(vllm_config.scheduler_config.get_scheduler_cls(), vllm_config)


STOCK = SchedulerContract("stock", _make_stock)
"""vLLM's own scheduler, sync or async by the config; it knows no limits and ignores them."""
