"""Thread CPU of a step, which also sees the loops in C that instructions do not."""

from __future__ import annotations

import logging

from benchmarks import scenes
from benchmarks.scenes import Scene
from conformance.engine import STOCK, ScriptedEngine

ROUNDS = 4

PAIRS = {
    # Few are served, so that a loop over all would show.
    "residents": {n: Scene(n, n - 2, users=2) for n in (1_024, 10_240)},
    "waiting": {n: Scene(8, users=2, waiting=n) for n in (10, 10_000)},
}
CROWD = Scene(256)


def measure() -> dict[str, dict[str, float]]:
    """ns of a schedule(): of each pair's scenes, and of stock and adapter over one crowd."""
    logging.disable(logging.WARNING)  # what vLLM says about each config that it is given
    times: dict[str, dict[str, float]] = {}
    for name, pair in PAIRS.items():
        engines = {str(n): (scenes.engine(scene), scene) for n, scene in pair.items()}
        times[name] = _least(engines)
    beside = {
        "stock": (scenes.engine(CROWD, STOCK), CROWD),
        "adapter": (scenes.engine(CROWD), CROWD),
    }
    times["limits not reached"] = _least(beside)
    return times


def _least(engines: dict[str, tuple[ScriptedEngine, Scene]]) -> dict[str, float]:
    best = dict.fromkeys(engines, float("inf"))
    for _ in range(ROUNDS):
        for name, (made, scene) in engines.items():
            best[name] = min(best[name], scenes.cpu_ns(made, scene))
    return best
