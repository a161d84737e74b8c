"""One stateful machine for any backend: whatever happens, every answer is what was promised.

In a repository of your own, one line makes a test of it, besides what the plugin runs:

    TestMine = limiter_machine(CONTRACT).TestCase
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from conformance.contract import Contract
from conformance.level1.definitions import definition
from conformance.level1.histories import (
    USERS,
    Player,
    bursts,
    maybe_rates,
    openings,
    origins,
    pauses,
    rates,
    users,
)
from conformance.level1.watch import Watch
from conformance.rules import Trial
from conformance.spec import rules as spec_rules

_WHOSE = (*USERS, "stranger")


def limiter_machine(contract: Contract, trial: Trial | None = None) -> type[LimiterMachine]:
    """A machine that tries this backend."""
    if trial is None:
        trial = Trial(spec_rules()["L-MODEL-1"], contract.name, "alone")
    return type("Machine", (LimiterMachine,), {"contract": contract, "trial": trial})


class LimiterMachine(RuleBasedStateMachine):
    """A limiter beside its definition, if its contract names one, and a watch on its windows."""

    contract: Contract
    trial: Trial

    @initialize(opening=openings, origin=origins)
    def begin(self, opening: Any, origin: int) -> None:
        default, own, burst_ns = opening
        self.watch = Watch(self.contract, self.trial, default, own, burst_ns, origin)
        self.one = self.watch.player
        oracle = definition(self.contract, default, own, burst_ns)
        self.other = None if oracle is None else Player(oracle, origin)
        self.fresh: dict[str, int] = {}
        """Grants of this instant that may still be refunded."""

    def play(self, *move: Any) -> Any:
        """One move on both; the answer, which must be the same."""
        if move[0] in ("set_rate", "unset_rate", "set_default_rate", "set_burst"):
            self.watch.change(move)
            self.fresh.clear()
            got = None
        else:
            got = self.one.play(move)
        if self.other is not None:
            expected = self.other.play(move)
            if move[0].startswith("try_take") and got != expected:
                self.differ(f"answer of {move}", got, expected)
        return got

    def differ(self, where: str, got: object, expected: object) -> None:
        self.trial.broken(
            user="a, b or c", at=f"{where} at {self.one.now_ns} ns", seen=got, promised=expected
        )

    def granted(self, user: str, count: int) -> None:
        if count:
            self.watch.note(user, count)
            self.fresh[user] = self.fresh.get(user, 0) + count

    @rule(user=users)
    def take(self, user: str) -> None:
        self.granted(user, int(self.play("try_take", user)))

    @rule(user=users, count=st.integers(0, 5))
    def take_many(self, user: str, count: int) -> None:
        self.granted(user, self.play("try_take_many", user, count))

    @rule(user=users)
    def refund(self, user: str) -> None:
        """Only of takes of this instant: others mean nothing without a definition."""
        if self.fresh.get(user, 0) or self.other is not None:
            self.play("refund", user)
            if self.fresh.get(user, 0):
                self.fresh[user] -= 1
                self.watch.note(user, -1)
            else:
                self.watch.forget(user)  # it may have undone a take of an earlier instant

    @rule(ns=pauses)
    def pause(self, ns: int) -> None:
        if ns:
            self.fresh.clear()
        self.play("pause", ns)

    @rule(user=users, early=st.integers(1, 10**9))
    def come_back(self, user: str, early: int) -> None:
        """Denied up to 1 ns before the ready instant, granted then."""
        limiter, now = self.one.limiter, self.one.now_ns
        ready = limiter.ready_at_ns(user, now)
        for at in (max(now, ready - early), ready - 1) if ready > now else ():
            self.pause(at - self.one.now_ns)
            if self.play("try_take", user):
                self.differ(f"a take of {user} before {ready} ns", True, False)
        self.pause(ready - self.one.now_ns)
        if not self.play("try_take", user):
            self.differ(f"a take of {user} when it was to be ready", False, True)
        self.granted(user, 1)

    @rule()
    def clean_up(self) -> None:
        self.play("cleanup_idle_users")

    @rule(user=users, rate=rates)
    def set_rate(self, user: str, rate: Any) -> None:
        self.play("set_rate", user, rate)

    @rule(user=users)
    def unset_rate(self, user: str) -> None:
        self.play("unset_rate", user)

    @rule(rate=maybe_rates)
    def set_default_rate(self, rate: Any) -> None:
        self.play("set_default_rate", rate)

    @rule(ns=bursts)
    def set_burst(self, ns: int) -> None:
        self.play("set_burst", ns)

    @precondition(lambda self: self.contract.follows_steps)
    @rule(ns=pauses | st.integers(0, 12 * 10**9))
    def end_step(self, ns: int) -> None:
        if ns:
            self.fresh.clear()
        self.play("step", ns)

    @invariant()
    def answers_as_promised(self) -> None:
        answers = self.one.answers(_WHOSE)
        for user, (available, wait) in zip(_WHOSE, answers, strict=True):
            if (available > 0) != (wait == 0) or available < 0 or wait < 0:
                self.differ(
                    f"{user}: available {available} and ready in {wait} ns", "both", "one story"
                )
        if self.other is None:
            return
        for user, mine, its in zip(_WHOSE, answers, self.other.answers(_WHOSE), strict=True):
            if mine != its:
                self.differ(f"(available, ns until ready) of {user}", mine, its)
        if len(self.one.limiter) != len(self.other.limiter):
            self.differ("users with state", len(self.one.limiter), len(self.other.limiter))

    def teardown(self) -> None:
        if hasattr(self, "watch") and not self.contract.follows_steps:
            self.watch.judge()
