"""One cell of the matrix: a scheduler, a backend, a depth; and the engines made for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NoReturn

from conformance.contract import Contract
from conformance.engine import STOCK, Limits, SchedulerContract, ScriptedEngine
from conformance.level2.spy import Call, SpyLimiter
from conformance.level2.verdicts import check_windows
from conformance.rules import RuleBroken, Trial
from conformance.spec import rules
from limiters import parse_rate

__all__ = ["BURST_NS", "MS", "SECOND", "Bench"]

MS = 1_000_000
SECOND = 1_000_000_000
BURST_NS = 100 * MS


@dataclass
class Bench:
    """Makes engines of the scheduler under test, and knows what its backend promises."""

    scheduler: SchedulerContract
    backend: Contract
    depth: int
    trial: Trial

    def broken(self, rule: str | None = None, **words: Any) -> NoReturn:
        """Fail, by default under the rule of this test; `words` are those of `Trial.broken`."""
        trial = self.trial if rule is None else replace(self.trial, rule=rules()[rule])
        trial.broken(**words)

    def check(self, holds: bool, rule: str | None = None, **words: Any) -> None:
        """`broken` unless it holds."""
        if not holds:
            self.broken(rule, **words)

    def engine(
        self,
        *,
        default_rate: Any = None,
        rates: Mapping[str, Any] | None = None,
        burst_ns: int = BURST_NS,
        spy: bool = False,
        **options: Any,
    ) -> ScriptedEngine:
        """An engine with limits; `options` are ScriptedEngine's, by default steps of 10 ms.

        With `spy` the backend's calls are in `calls(engine)`, if the scheduler takes a limiter by
        its name.
        """
        name, keywords = self.backend.backend, dict(self.backend.options)
        if spy:
            SpyLimiter.made.clear()
            name = f"{SpyLimiter.__module__}:{SpyLimiter.__qualname__}"
            keywords = {"backend": self.backend.backend, "backend_options": keywords}
        limits = Limits(default_rate, dict(rates or {}), name, burst_ns, keywords)
        engine = ScriptedEngine(self.scheduler, limits, depth=self.depth, **options)
        engine.limits = limits  # type: ignore[attr-defined]
        for name in ("step", "abort", "reset_prefix_cache"):
            setattr(engine, name, self._named(engine, getattr(engine, name)))
        return engine

    def _named(self, engine: ScriptedEngine, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call; where it fails, it fails as this test's rule."""

        def named(*args: Any, **keywords: Any) -> Any:
            try:
                return call(*args, **keywords)
            except RuleBroken:
                raise
            except Exception as error:
                words = " ".join(str(error).split())
                try:
                    self.broken(
                        at=f"step {len(engine.history.steps)}, {call.__name__}",
                        seen=f"{type(error).__name__}: {words}",
                        promised="a step that a worker can run, without an error",
                    )
                except RuleBroken as broken:
                    raise broken from error

        return named

    def calls(self, engine: ScriptedEngine) -> list[Call]:
        """What the scheduler of an engine made with `spy` has asked its limiter, up to now."""
        return SpyLimiter.made[-1].calls if SpyLimiter.made else []

    def stock(self, **options: Any) -> ScriptedEngine:
        """The same engine with vLLM's own scheduler and no limits."""
        return ScriptedEngine(STOCK, depth=self.depth, **options)

    def exhaust(self, engine: ScriptedEngine, user: str, **request: Any) -> str:
        """Put a user out of quota at this instant: an endless stream of it is then throttled.

        Wants a rate so low that nothing comes back while the test goes on. Returns its id.
        """
        name = f"endless-{user}"
        engine.add(name, user=user, **{"prompt": 2, "max_tokens": 400, **request})
        for _ in range(8):
            if user not in {engine.requests[i].user for i in engine.step(0).sampled}:
                break
        else:
            raise ValueError(f"user {user!r} is not out of quota after 8 steps: lower its rate")
        return name

    # What is promised

    def rate(self, engine: ScriptedEngine, user: str | None) -> Fraction | None:
        """The user's rate in tokens per second; None is unlimited."""
        limits = engine.limits  # type: ignore[attr-defined]
        rate = limits.rates.get(user, limits.default_rate)
        return None if rate is None else parse_rate(rate)

    def limited(self, engine: ScriptedEngine) -> list[str | None]:
        """The users seen so far who have a rate."""
        return [user for user in engine.history.users() if self.rate(engine, user) is not None]

    def full(self, rate: Any, burst_ns: int = BURST_NS) -> int:
        """Tokens that a full quota grants at one instant."""
        return self.backend.bound(0, parse_rate(rate), burst_ns)

    def evenness_ns(self, rate: Any, burst_ns: int = BURST_NS) -> int:
        return self.backend.evenness_ns(parse_rate(rate), burst_ns)

    def reach(self, rate: Any, step_ns: int, streams: int, burst_ns: int = BURST_NS) -> Fraction:
        """Tokens per second at least; 0 where nothing is promised."""
        promised = self.backend.reach(parse_rate(rate), burst_ns, step_ns, streams)
        return Fraction(0) if promised is None else promised

    def oracle(self, engine: ScriptedEngine) -> Any:
        """A limiter of this backend with the engine's limits and a full quota for everybody."""
        limits = engine.limits  # type: ignore[attr-defined]
        return self.backend.limiter(
            limits.default_rate, rates=limits.rates, burst_ns=limits.burst_ns
        )

    # What is seen

    def check_bounds(self, engine: ScriptedEngine, rule: str | None = None) -> None:
        """The backend's bound in all windows of all limited users."""
        burst_ns = engine.limits.burst_ns  # type: ignore[attr-defined]
        for user in self.limited(engine):
            rate = self.rate(engine, user)
            assert rate is not None

            def bound(width: int, rate: Fraction = rate) -> int:
                return self.backend.bound(width, rate, burst_ns)

            instants = engine.history.dispatches(user)
            check_windows(self, str(user), instants, bound, engine.clock.start_ns, rule)

    def charged(self, engine: ScriptedEngine) -> int:
        """Tokens charged net of refunds, over all users; without a ledger, those dispatched."""
        books = engine.ledger()
        if books is None:
            self.trial.figure("no ledger: charges judged by SchedulerOutput")
            tallies = engine.history.tallies
            return sum(tallies[user].dispatched for user in self.limited(engine))
        return books.net

    def check_ledger(self, engine: ScriptedEngine, rule: str | None = None) -> None:
        """Charged − refunded = dispatched while limited = delivered + in flight + lost."""
        step = len(engine.history.steps) - 1
        tallies = engine.history.tallies
        limited = self.limited(engine)
        for user in limited:
            tally, flying = tallies[user], engine.in_flight(user)
            if tally.in_flight != flying:
                self.broken(
                    rule,
                    user=str(user),
                    at=f"step {step}",
                    seen=f"{tally.dispatched} dispatched, {flying} of them in flight",
                    promised=f"{tally.delivered} delivered + {tally.lost.total()} lost + in flight",
                )
        books = engine.ledger()
        if books is None:
            return
        for user, account in books.accounts.items():
            # One that was closed and opened anew began at 0 again: it cannot hold more than seen.
            net = account.charged - account.refunded
            seen = tallies[user].dispatched if user in limited else 0
            if not 0 <= net <= seen or min(account) < 0:
                self.broken(
                    rule,
                    user=user,
                    at=f"step {step}",
                    seen=f"charged {account.charged} - refunded {account.refunded}",
                    promised=f"0 to {seen}, the tokens dispatched",
                )
        seen = sum(tallies[user].dispatched for user in limited)
        if books.net != seen:
            self.broken(
                rule,
                user="all",
                at=f"step {step}",
                seen=f"charged net of refunds {books.net}",
                promised=f"{seen}, the tokens dispatched",
            )

    def left(self, engine: ScriptedEngine, user: str, most: int = 64) -> int:
        """Tokens left of a user's quota at this instant, found out by using them up.

        Requests of one prompt token are sent until a step at the same instant gives the user
        nothing; they are aborted then. Everything else of the engine should be at rest.
        """
        tally = engine.history.tallies[user]
        got = 0
        while got < most:
            free = engine.vllm_config.scheduler_config.max_num_seqs - len(engine.scheduler.requests)
            names = [f"probe-{len(engine.requests) + i}" for i in range(max(1, free))]
            for name in names:
                engine.add(name, user=user, prompt=1, max_tokens=2)
            before = tally.dispatched
            engine.step(0)
            now = tally.dispatched - before
            engine.abort(*[name for name in names if not engine.requests[name].finished])
            engine.step(0)
            got += now
            if not now:
                break
        return got

    def due(self, engine: ScriptedEngine, user: str) -> int:
        """Tokens that must be left now if each dispatched one was charged once, at its instant."""
        limiter = self.oracle(engine)
        for at in engine.history.dispatches(user):
            limiter.try_take(user, at)
        return int(limiter.available(user, engine.clock()))

    def check_quota(self, engine: ScriptedEngine, user: str, what: str, rule: str | None = None):
        """What is left of the quota is what the dispatched tokens have left of it: no more charges
        were made, and no fewer. Needs no ledger."""
        due, step = self.due(engine, user), len(engine.history.steps)
        tokens = engine.history.tallies[user].dispatched
        seen = self.left(engine, user)
        if seen != due:
            self.broken(
                rule,
                user=user,
                at=f"step {step}, after {what}",
                seen=f"{seen} tokens left of the quota",
                promised=f"{due}, with {tokens} tokens dispatched so far",
            )
