"""Time calls against each other: interleaved, in CPU time of the thread, the least of many rounds.

Rounds are short and in turn, so that whatever slows the machine slows all of them; the least is
what the code takes when nothing does.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping

Round = Callable[[], int]
"""Runs a round; returns how many calls there were in it."""


def least_ns(rounds: Mapping[str, Round], times: int) -> dict[str, float]:
    """ns of thread CPU per call of each, the least of so many rounds."""
    best = dict.fromkeys(rounds, float("inf"))
    order = list(rounds)
    gc.collect()
    gc.disable()
    try:
        for n in range(times):
            # Forth and back, so that none always finds the caches as the same other left them.
            for name in order if n % 2 else reversed(order):
                start = time.thread_time_ns()
                calls = rounds[name]()
                took = time.thread_time_ns() - start
                best[name] = min(best[name], took / calls)
    finally:
        gc.enable()
    return best
