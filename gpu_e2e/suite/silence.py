"""A stream's long pause: exact by the engine's instants, with slack by its client's."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from conformance.endpoint.promise import SECOND_NS, Even, Promise
from conformance.endpoint.verdict import Verdict

#: How much shorter the pause may look to the client, in ns. A client reads a token some time after
#: it was dispatched, and the pause shrinks by as much as the first token was read later than the
#: second. The first one comes while all streams of the play start: on two busy cores it was read
#: 1.0 s late. Tenfold.
READ_LATE_NS = 10 * SECOND_NS


def least_pause_ns(promise: Promise) -> int:
    """The shortest pause between two tokens that the limiter may allow one stream, in ns.

    Of a user whose burst is less than a token's time, so that no two come at once.
    """
    burst_ns = promise.burst_ns if isinstance(promise, Even) else 0
    return promise.spacing_ns() - burst_ns


def pauses(
    dispatched_ns: Sequence[int], read_ns: Sequence[int], promise: Promise, limit: Fraction
) -> list[Verdict]:
    """Judge the pauses of a stream whose tokens were dispatched and read at these instants.

    `dispatched_ns` are the engine's instants, `read_ns` its client's; the two are never compared,
    only what lies between two of the same clock. `limit` is what the user is to have, in tokens
    per second: what the engine says of itself must be that.
    """
    least = least_pause_ns(promise)
    engine = min((b - a for a, b in pairwise(dispatched_ns)), default=0)
    client = min((b - a for a, b in pairwise(read_ns)), default=0)
    # By the limit, not by what the engine says of itself; the burst is within the slack.
    floor = float(SECOND_NS / limit) - READ_LATE_NS
    paced = f"{engine / 1e9:.4f} s between dispatches, {least / 1e9:.4f} at least promised"
    if promise.rate != limit:
        paced += f"; the engine says {promise.rate} tok/s, the limit is {limit}"
    silent = (
        f"silent for {client / 1e9:.1f} s, then went on ({max(0, floor) / 1e9:.1f} s at least); "
        f"{(engine - client) / 1e9:.2f} s of the engine's pause went to reading the first token"
    )
    figures = {"engine_s": round(engine / 1e9, 4), "client_s": round(client / 1e9, 2)}
    return [
        Verdict("paused", engine >= least and promise.rate == limit, paced, figures),
        Verdict("silent", client >= floor > 0, silent, figures),
    ]
