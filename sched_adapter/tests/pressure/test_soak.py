"""A short soak with every backend, sync and async; `tox -e soak` runs a long one."""

from __future__ import annotations

from conformance.contract import Contract
from conformance.contracts import BUILT_IN
from sched_adapter.tests.pressure.soak import soak

STEPS, ROUNDS = 900, 3


def test_people_come_and_go_and_nothing_of_them_stays(depth: int, backend: Contract) -> None:
    seed = 10 * depth + BUILT_IN.index(backend)  # both policies, with and without prefix caching
    figures = soak(depth, backend, seed, STEPS, ROUNDS).figures
    print(", ".join(f"{count:,} {what}" for what, count in sorted(figures.items())))
    for what in ("aborts", "bad names", "clock jumps", "pauses", "preemptions", "rate changes"):
        assert figures[what], f"the soak wants {what}"
    assert figures["users"] > 300
    assert figures["steps"] >= STEPS * ROUNDS
