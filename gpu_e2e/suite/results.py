"""What a run has found so far, scenario by scenario."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from conformance.endpoint.verdict import Verdict
from conformance.rules import Pace

Outcome = Literal["holds", "BROKEN", "not run"]


@dataclass(slots=True)
class Scenario:
    """One scenario on one server."""

    name: str
    server: str
    outcome: Outcome = "not run"
    seconds: float = 0.0
    why: str = ""  # of "not run", or the error of one that broke off
    verdicts: list[Verdict] = field(default_factory=list)
    paces: list[Pace] = field(default_factory=list)
    gaps_ns: dict[str, list[int]] = field(default_factory=dict)
    batches: list[tuple[int, int]] = field(default_factory=list)  # ns, sampled positions


@dataclass(slots=True)
class Results:
    """All of them, and what the run was."""

    title: str = ""
    scenarios: list[Scenario] = field(default_factory=list)

    def count(self, outcome: Outcome) -> int:
        return sum(s.outcome == outcome for s in self.scenarios)

    def save(self, path: Path) -> None:
        """Write verdicts and figures as JSON, without what is only drawn."""
        rows: list[dict[str, Any]] = []
        for scenario in self.scenarios:
            row = {k: getattr(scenario, k) for k in ("name", "server", "outcome", "seconds", "why")}
            row["verdicts"] = [
                {"rule": v.rule, "ok": v.ok, "message": v.message, "figures": dict(v.figures)}
                for v in scenario.verdicts
            ]
            rows.append(row)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"title": self.title, "scenarios": rows}, indent=1))
