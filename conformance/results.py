"""What came out: one result a test, gathered into cells of semantic, backend and mode."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from conformance.rules import Pace
from conformance.spec import SEMANTICS, Rule, rules

PASSED, DEVIATION, FAILED, PARTIAL, NOT_RUN, NO_RULE = (
    "passed",
    "deviation",
    "FAILED",
    "partial",
    "not run",
    "-",
)

MODES = {"alone": 1, "sync": 2, "async": 2, "endpoint": 3}
"""The columns of a backend, and the level that fills each."""


@dataclass(frozen=True)
class Result:
    """One test of a rule on one backend."""

    rule: Rule
    backend: str
    mode: str
    outcome: str
    """`PASSED`, `DEVIATION` or `FAILED`."""
    message: str = ""
    figures: Sequence[str] = ()
    paces: Sequence[Pace] = ()


@dataclass(frozen=True)
class Cell:
    """One semantic, one backend, one mode."""

    status: str
    results: Sequence[Result] = ()
    missing: Sequence[str] = ()
    """Ids of rules that belong here and did not run."""

    @property
    def figure(self) -> str:
        """The key figure: the first that a rule noted, in the order of SPEC.md."""
        return next((text for result in self.results for text in result.figures), "")


@dataclass
class Results:
    """All results of a run, and what was asked for."""

    levels: frozenset[int]
    all: list[Result] = field(default_factory=list)
    unclaimed: set[tuple[str, str]] = field(default_factory=set)
    """(rule id, backend): rules that the backend's contract does not claim."""
    backends: list[str] = field(default_factory=list)

    def modes(self) -> list[str]:
        """The columns of each backend: those of the levels that were asked for."""
        return [mode for mode, level in MODES.items() if level in self.levels]

    def cell(self, semantic: str, backend: str, mode: str) -> Cell:
        belongs = [
            rule
            for rule in rules().values()
            if rule.semantic == semantic and rule.level == MODES[mode]
        ]
        order = [rule.id for rule in belongs]
        claimed = [each for each in order if (each, backend) not in self.unclaimed]
        if not claimed:
            return Cell(NO_RULE)
        found = [r for r in self.all if r.backend == backend and r.mode == mode]
        found = sorted(
            (r for r in found if r.rule.semantic == semantic), key=lambda r: order.index(r.rule.id)
        )
        ran = {result.rule.id for result in found}
        missing = [each for each in claimed if each not in ran]
        return Cell(_status(found, missing), found, missing)

    def cells(self) -> Iterable[tuple[str, str, str, Cell]]:
        """(semantic, backend, mode, cell) for all."""
        for backend in self.backends:
            for mode in self.modes():
                for semantic in SEMANTICS:
                    yield semantic, backend, mode, self.cell(semantic, backend, mode)


def _status(found: Sequence[Result], missing: Sequence[str]) -> str:
    outcomes = {result.outcome for result in found}
    if FAILED in outcomes:
        return FAILED
    if not found:
        return NOT_RUN
    if missing:
        return PARTIAL
    return DEVIATION if DEVIATION in outcomes else PASSED
