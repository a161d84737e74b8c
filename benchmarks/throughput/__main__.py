"""Stock and adapter on the real engine, limits not reached: `python -m benchmarks.throughput`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.throughput.ratios import Result, result
from benchmarks.throughput.run import Mode, Work, engines, pairs

ROOT = Path(__file__).resolve().parents[2]
MODES: tuple[Mode, ...] = ("sync", "async")
TIMEOUT_S = 900
PAIRS = 30


def measured(mode: Mode, count: int = PAIRS) -> Result:
    """The result of one mode, from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.throughput", "--mode", mode, "--pairs", str(count)]
    done = subprocess.run(
        command, cwd=ROOT, timeout=TIMEOUT_S, check=True, stdout=subprocess.PIPE, text=True
    )
    return Result.from_json(json.loads(done.stdout.splitlines()[-1]))


def table(results: dict[Mode, Result]) -> str:
    """As Markdown: medians, in brackets the quartiles."""
    lines = [
        "| engine | pairs | stock, tok/s | throughput over stock | CPU over stock |",
        "| --- | --- | --- | --- | --- |",
    ]
    for mode, found in results.items():
        lines.append(
            f"| {mode} | {found.pairs} | {found.stock_tokens_per_s:.0f} | {found.throughput} "
            f"| {found.cpu} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput", description=__doc__)
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"runs of each ({PAIRS})")
    parser.add_argument("--mode", choices=MODES, help="one mode, here, printed as JSON")
    chosen = parser.parse_args()
    if chosen.mode:
        found = result(list(pairs(engines(chosen.mode), Work(), chosen.pairs)))
        print(json.dumps(found.to_json()), flush=True)
        os._exit(0)  # two engines in one process do not always end by themselves
    print(table({mode: measured(mode, chosen.pairs) for mode in MODES}))


if __name__ == "__main__":
    main()
