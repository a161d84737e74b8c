"""What a rule's test holds in its hands: the rule, whom it tries, and how to say what broke.

    @rule("S2-BOUND-2")
    def test_S2_BOUND_2_holds_under_aborts(contract, scheduler, depth, trial): ...

Arguments that a rule's test may name, each filled in by the run: `contract`, the limiter's
`Contract` (every level); `scheduler`, a `SchedulerContract` and `depth`, 1 or 2 (level 2); `trial`;
and `hypothesis_settings`. A rule may have several tests; it fails if one of them does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

import pytest

from conformance.spec import Rule, rules

_Test = TypeVar("_Test", bound=Callable[..., Any])


class RuleBroken(AssertionError):
    """A rule does not hold: one line that names rule, user, where, what was seen and promised."""


def rule(rule_id: str, *, claimed: Callable[[Any], bool] | None = None) -> Callable[[_Test], _Test]:
    """Mark the test of a rule; its name must hold the id, as `test_S2_BOUND_2_…`.

    `claimed` tells from a limiter's contract whether it claims the rule at all; without it, all do.
    """
    if rule_id not in rules():
        raise ValueError(f"unknown rule {rule_id!r}, see SPEC.md")

    def mark(test: _Test) -> _Test:
        named = rule_id.replace("-", "_")
        if named not in getattr(test, "__name__", named):
            raise ValueError(f"{test.__name__}: the name must hold {named}")
        return pytest.mark.rule(rule_id, claimed=claimed)(test)

    return mark


@dataclass
class Pace:
    """Tokens over time against a promise, for the plots."""

    title: str
    instants_ns: Sequence[int]
    """The grants, in order."""
    bound: Callable[[int], int]
    """The most grants in a closed window of this width in ns."""
    rate: float
    """Tokens per second."""


@dataclass
class Trial:
    """One rule tried on one backend: the fixture `trial`."""

    rule: Rule
    backend: str
    mode: str
    """`alone` (level 1), `sync` or `async`."""
    figures: list[str] = field(default_factory=list)
    paces: list[Pace] = field(default_factory=list)

    def figure(self, text: str) -> None:
        """Note a key figure, short and with its unit; the first one of a cell is shown in it."""
        self.figures.append(text)

    def pace(
        self, title: str, instants_ns: Sequence[int], bound: Callable[[int], int], rate: float
    ) -> None:
        """Note a run to be plotted."""
        self.paces.append(Pace(title, tuple(instants_ns), bound, rate))

    def broken(
        self, *, user: str = "-", at: str = "-", seen: object, promised: object, note: str = ""
    ) -> NoReturn:
        """Fail. `at` says which window, step or instant, with units."""
        raise RuleBroken(
            f"{self.rule.id} broken by {self.backend} ({self.mode}): user {user}, {at}: "
            f"seen {seen}, promised {promised}{'; ' + note if note else ''}. "
            f"If this fails: {self.rule.look_at}"
        )

    def check(
        self,
        holds: bool,
        *,
        user: str = "-",
        at: str = "-",
        seen: object,
        promised: object,
        note: str = "",
    ) -> None:
        """`broken` unless it holds."""
        if not holds:
            self.broken(user=user, at=at, seen=seen, promised=promised, note=note)
