"""Judge what came out of a run: windows, turns, tokens, ends.

Every verdict speaks through a `Bench`, so its failure names a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from conformance.engine import RequestLog, ScriptedEngine

if TYPE_CHECKING:
    from conformance.level2.bench import Bench

__all__ = [
    "check_ended",
    "check_turns",
    "check_whole",
    "check_windows",
    "drain",
    "ms",
    "pace",
]


def ms(ns: int) -> str:
    """An instant or a duration in ns, for people."""
    return f"{ns / 1e6:g} ms"


def tightest(instants: Sequence[int]) -> list[tuple[int, int]]:
    """For 1, 2, 3 … tokens: the shortest closed window (ns) that holds so many, and its first."""
    at = np.asarray(instants, dtype=np.int64)
    windows = []
    for count in range(1, len(at) + 1):
        widths = at[count - 1 :] - at[: len(at) - count + 1]
        first = int(widths.argmin())
        windows.append((int(widths[first]), first))
    return windows


def check_windows(
    bench: Bench,
    user: str,
    instants: Sequence[int],
    bound: Callable[[int], int],
    origin_ns: int,
    rule: str | None = None,
) -> None:
    """No closed window of any width (ns) holds more of `instants` than `bound` of it."""
    for count, (width, first) in enumerate(tightest(instants), start=1):
        most = bound(width)
        if count > most:
            bench.broken(
                rule=rule,
                user=user,
                at=f"window of {ms(width)} from {ms(instants[first] - origin_ns)}",
                seen=f"{count} tokens",
                promised=f"at most {most}",
            )


def check_turns(
    bench: Bench, user: str, streams: Iterable[RequestLog], rule: str | None = None
) -> None:
    """From when all streams have had a token until the first ends, none is ahead by more than 1."""
    streams = list(streams)
    starved = [s.id for s in streams if not s.dispatch_ns]
    if starved:
        bench.broken(
            rule=rule,
            user=user,
            at="whole run",
            seen=f"no token for {starved}",
            promised="turns among all its streams",
        )
    start = max(s.dispatch_ns[0] for s in streams)
    end = min(s.dispatch_ns[-1] for s in streams)
    if start >= end:
        bench.broken(
            rule=rule,
            user=user,
            at="whole run",
            seen="streams that never ran all at once",
            promised="turns among all its streams",
        )
    had = dict.fromkeys((s.id for s in streams), 0)
    events = sorted((at, s.id) for s in streams for at in s.dispatch_ns if start < at <= end)
    for index, (at, name) in enumerate(events):
        had[name] += 1
        if index + 1 < len(events) and events[index + 1][0] == at:
            continue  # within a step there is no order
        if max(had.values()) - min(had.values()) > 1:
            bench.broken(
                rule=rule,
                user=user,
                at=f"{ms(at - start)} after all its streams had a token",
                seen=f"tokens by stream {had}",
                promised="at most 1 apart",
            )


def check_whole(
    bench: Bench,
    engine: ScriptedEngine,
    ids: Iterable[str] | None = None,
    rule: str | None = None,
) -> None:
    """What came out is the unlimited run's, whole; after an abort a beginning of it."""
    for name in list(engine.requests if ids is None else ids):
        log = engine.requests[name]
        whole = engine.expected(name)
        if log.finish_reason not in (None, "abort", "error") and len(log.tokens) != len(whole):
            bench.broken(
                rule=rule,
                user=str(log.user),
                at=f"request {name}",
                seen=f"{len(log.tokens)} tokens, ended by {log.finish_reason}",
                promised=f"the unlimited run's {len(whole)}",
            )
        if log.tokens != whole[: len(log.tokens)]:
            pairs = zip(log.tokens, whole, strict=False)
            first = next((i for i, (a, b) in enumerate(pairs) if a != b), len(whole))
            bench.broken(
                rule=rule,
                user=str(log.user),
                at=f"request {name}, token {first}",
                seen=log.tokens[first],
                promised=f"{whole[first : first + 1]} as in the unlimited run",
            )


def drain(
    bench: Bench, engine: ScriptedEngine, max_steps: int = 20_000, rule: str | None = None
) -> int:
    """Let everything end; returns the steps it took."""
    taken = 0
    while engine.busy and taken < max_steps:
        engine.step()
        taken += 1
    left = [log for log in engine.requests.values() if not log.finished]
    if left or engine.busy:
        stuck = left[0] if left else None
        where = "unknown to the scheduler" if stuck and not engine.busy else "unfinished"
        bench.broken(
            rule=rule,
            user=str(stuck.user) if stuck else "-",
            at=f"after {taken} steps, request {stuck.id if stuck else '-'}",
            seen=f"{len(stuck.tokens) if stuck else 0} tokens, {len(left)} requests {where}",
            promised="every request ends",
        )
    return taken


def check_ended(bench: Bench, engine: ScriptedEngine, rule: str | None = None) -> None:
    """All requests are gone, and nothing is held for them."""
    held = engine.leaks()
    if held:
        bench.broken(
            rule=rule, at="after the last request", seen=", ".join(held), promised="nothing held"
        )


def pace(instants: Sequence[int], start_ns: int, end_ns: int) -> Fraction:
    """Tokens per second in [start, end)."""
    count = sum(start_ns <= at < end_ns for at in instants)
    return Fraction(count * 10**9, end_ns - start_ns)
