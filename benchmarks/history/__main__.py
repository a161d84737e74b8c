"""Record this release's figures, or draw those of all: `python -m benchmarks.history record|draw`.

`record` measures all parts, or those that are named, and writes them to the release's file.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.history import files
from benchmarks.history.parts import PARTS

PICTURE = files.ROOT / "reports" / "history.png"

LINES: dict[str, Sequence[Sequence[str]]] = {
    "instructions of a step": [
        ("counts", "steps", "sync, 256 resident of 16 users: adapter"),
        ("counts", "steps", "sync, 1024 resident, 95 % throttled: adapter"),
        ("counts", "steps", "sync, 10000 waiting: adapter"),
    ],
    "instructions of a take, GCRA": [
        ("counts", "verbs", "gcra 10/s: try_take, allowed"),
        ("counts", "verbs", "gcra 10/s: try_take, denied"),
    ],
    "a take, ns": [
        ("verbs", "ns", "allowed", "gcra"),
        ("verbs", "ns", "denied", "gcra"),
        ("verbs", "ns", "allowed", "floor"),
    ],
    "throughput over stock": [
        ("throughput", "sync", "128", "throughput", "median"),
        ("throughput", "async", "128", "throughput", "median"),
    ],
}
"""What is drawn, each line by its way through a release's figures."""


def record(parts: Sequence[str]) -> Path:
    """Measure the parts, and put them into the release's file beside those that are there."""
    logging.disable(logging.WARNING)  # what vLLM says about each config that it is given
    name = files.release()
    figures = files.read(name)
    for part in parts:
        where = files.circumstances()
        figures[part] = {"measured": where, **PARTS[part]()}
        files.write(name, figures)
        print(f"{part}: recorded", flush=True)
    return files.FOLDER / f"{name}.json"


def follow(figures: dict[str, Any], way: Sequence[str]) -> float | None:
    """The figure at the end of a way; None if the release has none."""
    found: Any = figures
    for name in way:
        found = found.get(name) if isinstance(found, dict) else None
    return None if found is None else float(found)


def draw(path: Path) -> None:
    """The figures of all releases, one panel a kind."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = files.releases()
    all_figures = [files.read(name) for name in names]
    figure, axes = plt.subplots(len(LINES), 1, figsize=(8, 3 * len(LINES)), squeeze=False)
    for [axis], (title, ways) in zip(axes, LINES.items(), strict=True):
        for way in ways:
            points = [
                (name, value)
                for name, figures in zip(names, all_figures, strict=True)
                if (value := follow(figures, way)) is not None
            ]
            axis.plot(*zip(*points, strict=True), marker="o", label=", ".join(way[1:]))
        axis.set_title(title, loc="left", fontsize=10)
        axis.set_ylim(bottom=0)
        axis.legend(fontsize=7)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="measure, and write this release's file")
    recording.add_argument("part", nargs="*", help=f"of {', '.join(PARTS)}; none: all")
    drawing = commands.add_parser("draw", help="draw all releases")
    drawing.add_argument("--picture", type=Path, default=PICTURE, help="where to (PNG)")
    chosen = parser.parse_args()
    if chosen.command == "draw":
        draw(chosen.picture)
        print(chosen.picture)
        return
    unknown = set(chosen.part) - PARTS.keys()
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    print(record(chosen.part or list(PARTS)))


if __name__ == "__main__":
    main()
