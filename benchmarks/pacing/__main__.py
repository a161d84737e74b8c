"""Print how each backend paces: `python -m benchmarks.pacing`."""

from __future__ import annotations

import logging

from benchmarks.pacing.run import BACKENDS, STEPS, run


def table() -> str:
    """As Markdown: 60 s from the first token of a full quota, 4 streams a user, sync."""
    lines = [
        "| backend | steps | tok/s | achieved / configured | latest, ms | gaps in 1/rate: median, "
        "95 %, longest |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for backend in BACKENDS:
        for steps in STEPS:
            for rate, pace in run(backend, steps).items():
                lines.append(
                    f"| {backend.title} | {steps} | {rate} | {pace.achieved:.4f} "
                    f"| {pace.latest_ms:.1f} "
                    f"| {pace.gap(0.5):.2f}, {pace.gap(0.95):.2f}, {pace.gap(1):.2f} |"
                )
    return "\n".join(lines)


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # what vLLM says about each config that it is given
    print(table())
