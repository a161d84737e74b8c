"""Plain measurements of an engine's record: waits, steps and gaps in ns, nothing judged."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

from conformance.endpoint.record import EngineRecord


def lateness_ns(record: EngineRecord, user: str) -> list[int]:
    """How long after it was ready again each throttled spell of the user ended, in ns."""
    instants = [d.ns for d in record.of_user(user)]
    found = []
    for spell in record.throttled:
        if spell.user != user:
            continue
        index = bisect_left(instants, spell.ready_ns)
        if index < len(instants):
            found.append(instants[index] - spell.ready_ns)
    return found


def step_times(record: EngineRecord) -> list[int]:
    """Times between steps, without those in which the engine waited."""
    instants = sorted({ns for ns, _ in record.steps()})
    waited = sorted(w.ns for w in record.waits)
    return [
        b - a for a, b in pairwise(instants) if bisect_left(waited, a) == bisect_left(waited, b)
    ]


def stream_gaps(record: EngineRecord, user: str) -> list[int]:
    """The times between one request's tokens, over all requests of the user."""
    return [b.ns - a.ns for ds in record.by_request(user).values() for a, b in pairwise(ds)]


def gaps_while_wanting(record: EngineRecord, user: str) -> list[tuple[int, int]]:
    """Neighbouring dispatches of the user, if one of its requests had begun and goes on."""
    lives = sorted((ds[0].ns, ds[-1].ns) for ds in record.by_request(user).values())
    instants = [d.ns for d in record.of_user(user)]
    gaps = []
    index, until = 0, 0
    for before, after in pairwise(instants):
        while index < len(lives) and lives[index][0] <= before:
            until = max(until, lives[index][1])
            index += 1
        if until >= after:
            gaps.append((before, after))
    return gaps
