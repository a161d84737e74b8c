"""Count, and print it as JSON: `python -m benchmarks.counted verbs` or `steps`.

A process of its own, because pytest rewrites the asserts of packages whose distribution brings a
plugin, as ours does where it is installed: the same code would count more than in an engine.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("verbs", "steps")
TIMEOUT_S = 300


def measured(kind: str) -> dict[str, int]:
    """The counts of one kind, from a fresh process."""
    command = [sys.executable, "-m", "benchmarks.counted", kind]
    done = subprocess.run(
        command, cwd=ROOT, timeout=TIMEOUT_S, check=True, stdout=subprocess.PIPE, text=True
    )
    # vLLM logs to stdout; the counts are the last line.
    counts: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return counts


def main(kind: str) -> None:
    counts = importlib.import_module(f"benchmarks.counted.{kind}").measure()
    print(json.dumps(counts))


if __name__ == "__main__":
    if sys.argv[1:] not in [[kind] for kind in KINDS]:
        sys.exit(f"usage: python -m benchmarks.counted {'|'.join(KINDS)}, got {sys.argv[1:]}")
    main(sys.argv[1])
