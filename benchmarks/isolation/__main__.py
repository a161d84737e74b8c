"""An interactive user on the engine, alone and beside others: `python -m benchmarks.isolation`."""

from __future__ import annotations

import argparse

from benchmarks.in_process import MODES, Mode, apart, tell
from benchmarks.isolation.figures import Compared, Result
from benchmarks.isolation.run import QUESTIONS
from benchmarks.isolation.run import measured as run


def measured(mode: Mode, count: int = QUESTIONS) -> dict[str, Result]:
    """The results of one mode by situation, from a process of its own."""
    found = apart("benchmarks.isolation", mode, "--questions", str(count))
    return {name: Result.from_json(data) for name, data in found.items()}


def table(results: dict[Mode, dict[str, Result]]) -> str:
    """As Markdown: medians in ms, in brackets the 99th percentile, and their ratio."""
    lines = [
        "| engine | beside | first token alone, ms | beside, ms | ratio | gap alone, ms "
        "| beside, ms | ratio | held | others, tok/s | steps a token |",
        "| --- " * 11 + "|",
    ]
    for mode, situations in results.items():
        for name, found in situations.items():
            lines.append(
                f"| {mode} | {name} | {_shown(found.first)} | {_shown(found.gap)} "
                f"| {found.held:.0%} | {found.others_per_s:.2f} | {found.steps_per_token:.2f} |"
            )
    return "\n".join(lines)


def _shown(found: Compared) -> str:
    return (
        f"{found.alone_ms:.2f} ({found.alone_p99_ms:.2f}) "
        f"| {found.beside_ms:.2f} ({found.beside_p99_ms:.2f}) | {found.ratio:.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.isolation", description=__doc__)
    parser.add_argument(
        "--questions", type=int, default=QUESTIONS, help=f"of each situation ({QUESTIONS})"
    )
    parser.add_argument("--mode", choices=MODES, help="one mode, here, printed as JSON")
    chosen = parser.parse_args()
    if chosen.mode:
        found = {each.name: each_found for each, each_found in run(chosen.mode, chosen.questions)}
        tell({name: each.to_json() for name, each in found.items()})
    print(table({mode: measured(mode, chosen.questions) for mode in MODES}))


if __name__ == "__main__":
    main()
