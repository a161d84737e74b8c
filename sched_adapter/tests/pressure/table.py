"""Ours, the plain limiter and stock side by side: `python -m sched_adapter.tests.pressure.table`.

Figures of the real scheduler under vLLM's KV manager with a scripted model, in steps of 10 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from conformance.engine import ADAPTER, STOCK, SchedulerContract
from sched_adapter.tests.pressure.crowds import behind_queue, beside_flood, first_of_own, turns
from sched_adapter.tests.pressure.plain import PLAIN

SCHEDULERS = {"ours": ADAPTER, "plain": PLAIN, "stock": STOCK}


def _steps(value: int | None) -> str:
    return "never" if value is None else str(value)


def _flood(requests: int) -> Callable[..., str]:
    def figure(depth: int, contract: SchedulerContract) -> str:
        seen = beside_flood(depth, requests, contract)
        return f"{_steps(seen.first_token)}, {200 - seen.missed}"

    return figure


def _turns(streams: list[int], cap: int) -> Callable[..., str]:
    def figure(depth: int, contract: SchedulerContract) -> str:
        seen = turns(depth, streams, cap, contract)
        return f"{seen.jain:.3f}, {seen.wait}"

    return figure


def _own(depth: int, contract: SchedulerContract) -> str:
    waits = first_of_own(depth, 12, 10, contract)
    return "never" if None in waits else f"{max(w for w in waits if w is not None) / 1e9:.2f} s"


def _queue(depth: int, contract: SchedulerContract) -> str:
    waits = behind_queue(depth, 2000, contract)
    return "never" if None in waits else str(max(w for w in waits if w is not None))


ROWS: dict[str, Callable[..., str]] = {
    "first token beside 40 throttled requests (steps), then tokens in 200": _flood(40),
    "first token beside 400 throttled requests (steps), then tokens in 200": _flood(400),
    "10 users, 4 in a step: worst Jain's index, longest wait (steps)": _turns([1] * 10, 4),
    "the same with 1 to 4 streams a user": _turns([1, 2, 3, 4, 1, 2, 3, 4, 1, 2], 4),
    "last first token of a user's own 12 streams at 10 tok/s": _own,
    "first token behind 2,000 queued throttled requests (steps)": _queue,
}


def rows(depths: Iterable[int] = (1, 2), which: Iterable[str] = ROWS) -> list[list[str]]:
    """A header and a row for each figure and depth; "never" is not in that run."""
    made: list[list[Any]] = [["figure", "engine", *SCHEDULERS]]
    for name in which:
        for depth in depths:
            cells = [ROWS[name](depth, contract) for contract in SCHEDULERS.values()]
            made.append([name, {1: "sync", 2: "async"}[depth], *cells])
    return made


def markdown(table: list[list[str]]) -> str:
    head, *body = table
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    print(markdown(rows()))
