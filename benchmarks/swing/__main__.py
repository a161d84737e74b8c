"""Measure the swing, print a table, draw docs/swing.png: `python -m benchmarks.swing`."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from benchmarks.swing.figures import Swing, spectrum, swing
from benchmarks.swing.run import BACKENDS, CROWDS, STEPS_PER_S, batches

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "swing.png"
SECONDS = 6
SHOWN_S = 3

Measured = dict[tuple[str, str], list[int]]


def measure(seconds: int = SECONDS) -> Measured:
    """Batch sizes by (crowd, backend)."""
    logging.disable(logging.WARNING)  # what vLLM says about each config that it is given
    return {
        (crowd.title, backend.title): batches(backend, crowd, seconds)
        for crowd in CROWDS
        for backend in BACKENDS
    }


def table(measured: Measured) -> str:
    """The figures as Markdown."""
    lines = [
        "| users | backend | requests in a step, mean | peak / mean | swing at 1 Hz "
        "| strongest swing |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for (crowd, backend), sizes in measured.items():
        lines.append(f"| {crowd} | {backend} | {_cells(swing(sizes))} |")
    return "\n".join(lines)


def _cells(found: Swing) -> str:
    return (
        f"{found.mean:.1f} | {found.peak_to_mean:.1f} | {found.at_1_hz:.2f} "
        f"| {found.strongest:.2f} at {found.strongest_hz:.1f} Hz"
    )


def draw(measured: Measured, path: Path) -> None:
    """Batch size over time, and its spectrum, for each backend and crowd."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    inks = ("#b3412c", "#7a9a3a", "#2c5f8a")
    colours = {crowd.title: ink for crowd, ink in zip(CROWDS, inks, strict=True)}
    figure, axes = plt.subplots(
        len(BACKENDS), 2, figsize=(10, 9), width_ratios=(3, 2), sharex="col", squeeze=False
    )
    for row, backend in zip(axes, BACKENDS, strict=True):
        for crowd in CROWDS:
            sizes = measured[crowd.title, backend.title]
            shown = sizes[: SHOWN_S * STEPS_PER_S]
            row[0].step(
                [n / STEPS_PER_S for n in range(len(shown))],
                shown,
                color=colours[crowd.title],
                linewidth=0.8,
                label=crowd.title,
            )
            row[1].plot(*spectrum(sizes), color=colours[crowd.title], linewidth=0.8)
        row[0].set_title(backend.title, loc="left", fontsize=10)
        row[0].set_ylabel("requests in a step")
        row[1].set_ylabel("amplitude / mean")
        row[1].set_xscale("log")
        row[1].axvline(1, color="grey", linewidth=0.6, linestyle=":")
        row[1].set_ylim(0, 2.1)
    axes[0][0].legend(fontsize=8, loc="upper right")
    axes[-1][0].set_xlabel("s")
    axes[-1][1].set_xlabel("Hz")
    figure.tight_layout()
    figure.savefig(path, dpi=80, metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.swing", description=__doc__)
    parser.add_argument("--picture", type=Path, default=PICTURE, help="where to draw (PNG)")
    chosen = parser.parse_args()
    measured = measure()
    print(table(measured))
    draw(measured, chosen.picture)


if __name__ == "__main__":
    main()
