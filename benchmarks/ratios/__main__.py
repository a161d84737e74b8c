"""Time once, and print it as JSON: `python -m benchmarks.ratios verbs` or `steps`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 300

Times = dict[str, dict[str, float]]
"""ns by what was timed and by whom."""


def verbs() -> Times:
    from benchmarks.ratios.timing import least_ns
    from benchmarks.ratios.verbs import KINDS

    return {kind: least_ns(make(), times) for kind, (make, times) in KINDS.items()}


def steps() -> Times:
    from benchmarks.ratios.steps import measure

    return measure()


def measured(kind: str) -> Times:
    """Times of one kind, from a fresh process."""
    command = [sys.executable, "-m", "benchmarks.ratios", kind]
    done = subprocess.run(
        command, cwd=ROOT, timeout=TIMEOUT_S, check=True, stdout=subprocess.PIPE, text=True
    )
    times: Times = json.loads(done.stdout.splitlines()[-1])
    return times


def best_ratio(runs: list[Times], kind: str, over: str, under: str) -> float:
    """The ratio of the least that each took in any of the processes.

    The least of both sides is near what the code takes; the least of the ratios would be what the
    machine did to one side.
    """
    return min(run[kind][over] for run in runs) / min(run[kind][under] for run in runs)


if __name__ == "__main__":
    kinds = {"verbs": verbs, "steps": steps}
    if len(sys.argv) != 2 or sys.argv[1] not in kinds:
        sys.exit(f"usage: python -m benchmarks.ratios {'|'.join(kinds)}, got {sys.argv[1:]}")
    print(json.dumps(kinds[sys.argv[1]]()))
