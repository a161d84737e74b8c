"""Engines for these tests: our scheduler, a plain one and stock's, and what every run must keep.

The real vLLM scheduler and KV cache manager run with a scripted model and a manual clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from conformance.contract import Contract
from conformance.contracts import GCRA
from conformance.engine import (
    ADAPTER,
    STOCK,
    Limits,
    SchedulerContract,
    ScriptedEngine,
    build_scheduler,
)
from conformance.level2.verdicts import tightest
from limiters import parse_rate
from sched_adapter import config
from sched_adapter.scheduler import OutputRateScheduler

MS = 1_000_000
SECOND = 1_000_000_000
BURST_NS = 100 * MS

#: A rate (tokens/s) at which nothing comes back while a test lasts.
NEVER = "1/1000000"


def house(
    depth: int = 1,
    backend: Contract | str = GCRA,
    *,
    default_rate: Any = None,
    rates: Mapping[str, Any] | None = None,
    burst_ns: int = BURST_NS,
    options: Mapping[str, Any] | None = None,
    contract: SchedulerContract = ADAPTER,
    **settings: Any,
) -> ScriptedEngine:
    """An engine with limits; `settings` are ScriptedEngine's, by default steps of 10 ms.

    `backend` is a contract, or a limiter's name as `limiters.make_limiter` takes it.
    """
    name, keywords = backend, dict(options or {})
    if isinstance(backend, Contract):
        name, keywords = backend.backend, {**backend.options, **keywords}
    limits = Limits(default_rate, dict(rates or {}), str(name), burst_ns, keywords)
    engine = ScriptedEngine(contract, limits, depth=depth, **settings)
    engine.limits = limits  # type: ignore[attr-defined]
    return engine


def with_policy(on_fault: str) -> SchedulerContract:
    """Our scheduler with this policy for a backend that fails."""

    def make(vllm_config: Any, limits: Limits, clock: Any) -> Any:
        attached = config.OutputRateConfig(
            default_rate=limits.default_rate,  # type: ignore[arg-type]
            rates=limits.rates,  # type: ignore[arg-type]
            limiter=limits.limiter,
            burst_ns=limits.burst_ns,
            options=limits.options,
            on_fault=on_fault,
        )
        config.attach(vllm_config, attached)
        return build_scheduler(OutputRateScheduler, vllm_config, clock)

    return SchedulerContract(f"adapter, {on_fault}", make, ADAPTER.ledger)


def rate_of(engine: ScriptedEngine, user: str | None) -> Fraction | None:
    """Tokens/s that the engine was started with for this user; None is unlimited."""
    limits = engine.limits  # type: ignore[attr-defined]
    rate = limits.rates.get(user, limits.default_rate)
    return None if rate is None else parse_rate(rate)


def check_bounds(
    engine: ScriptedEngine, backend: Contract, users: Iterable[str | None] | None = None
) -> None:
    """No window of any width holds more tokens of a limited user than its backend's bound."""
    burst_ns = engine.limits.burst_ns  # type: ignore[attr-defined]
    for user in engine.history.users() if users is None else users:
        rate = rate_of(engine, user)
        if rate is None:
            continue
        for count, (width, _) in enumerate(tightest(engine.history.dispatches(user)), start=1):
            most = backend.bound(width, rate, burst_ns)
            assert count <= most, f"{user}: {count} tokens in {width} ns, at most {most}"


def check_books(engine: ScriptedEngine, failed_open: int = 0) -> None:
    """Charged net of refunds is what was dispatched to limited users, less what failed open."""
    books = engine.ledger()
    assert books is not None
    seen = 0
    for user, tally in engine.history.tallies.items():
        assert tally.in_flight == engine.in_flight(user), user
        if rate_of(engine, user) is not None:
            seen += tally.dispatched
    assert engine.scheduler.ledger.failed_open == failed_open
    assert books.net + failed_open == seen


def check_whole(engine: ScriptedEngine) -> None:
    """Every request that has ended by itself gave what it gives without limits."""
    for name, log in engine.requests.items():
        whole = engine.expected(name)
        if log.finish_reason not in (None, "abort", "error"):
            assert len(log.tokens) == len(whole), name
        assert log.tokens == whole[: len(log.tokens)], name


def first_step(engine: ScriptedEngine, request_id: str) -> int | None:
    """Steps (of the default length) from a request's arrival to its first token: 0 is at once."""
    log = engine.requests[request_id]
    if not log.dispatch_ns:
        return None
    return (log.dispatch_ns[0] - log.arrival_ns) // engine.step_ns


def stock(depth: int = 1, **settings: Any) -> ScriptedEngine:
    """vLLM's own scheduler without limits."""
    return ScriptedEngine(STOCK, depth=depth, **settings)
