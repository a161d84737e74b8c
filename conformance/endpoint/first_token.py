"""Where the time to a first token goes: four parts of it, and who was being served meanwhile.

The client's instants and the engine's are compared, so both have to be of one machine's monotonic
clock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from conformance.endpoint.record import EngineRecord
from conformance.endpoint.trace import Stream

# From a step's end to the requests that came during it, with room: an asynchronous engine of vLLM
# 0.32 sleeps 1 ms in between, if there is nothing to schedule.
SOON_NS = 3_000_000


class FirstToken(NamedTuple):
    """One request's way to its first token: instants in ns.

    vLLM hands a request to its scheduler between two steps, so a step in flight when it comes is
    waited for before `arrived_ns`, not after it.
    """

    sent_ns: int  # the client began
    arrived_ns: int  # the scheduler got the request
    dispatched_ns: int  # the step that samples its first token began
    output_ns: int  # that step's output was handed on
    read_ns: int  # the client had read the token

    def parts(self) -> dict[str, int]:
        """How long each part took, in ns."""
        return {
            "in": self.arrived_ns - self.sent_ns,
            "queue": self.dispatched_ns - self.arrived_ns,
            "step": self.output_ns - self.dispatched_ns,
            "out": self.read_ns - self.output_ns,
        }


def first_token(record: EngineRecord, stream: Stream) -> FirstToken | None:
    """The stream's, None if it got no token or the record lacks a part of its way.

    A stream of several requests (n > 1) has no one first token, so None too.
    """
    if stream.request_id is None or not stream.token_ns:
        return None
    mine = [req for req in record.arrivals if stream.request_id in req and record.outputs.get(req)]
    if len(mine) != 1:
        return None
    dispatched = next((d.ns for d in record.dispatches if d.req == mine[0]), None)
    if dispatched is None:
        return None
    return FirstToken(
        stream.started_ns,
        record.arrivals[mine[0]],
        dispatched,
        record.outputs[mine[0]][0],
        stream.token_ns[0],
    )


def steps_of_others(record: EngineRecord, user: str) -> list[tuple[int, int]]:
    """When each step that served anybody but the user began and had its output handed on, in ns.

    In order; a token that was lost has no output and is left out. Needs a whole record: which
    output is whose is told by counting, and `within` cuts dispatches alone.
    """
    ends: dict[int, int] = {}
    for req, dispatches in record.by_request().items():
        if dispatches[0].user != user:
            for dispatch, end_ns in zip(dispatches, record.outputs.get(req, ()), strict=False):
                ends[dispatch.ns] = max(end_ns, ends.get(dispatch.ns, 0))
    return sorted(ends.items())


def held(
    firsts: Iterable[FirstToken], steps: list[tuple[int, int]]
) -> tuple[list[FirstToken], list[FirstToken]]:
    """Those that came to the scheduler as such a step ended, so had waited for its end; the rest.

    `steps` as `steps_of_others` gives them. Who comes by chance within `SOON_NS` of a step's end
    counts as held.
    """
    waited: list[FirstToken] = []
    rest: list[FirstToken] = []
    ends = sorted(end for _, end in steps)
    for each in firsts:
        after = bisect_right(ends, each.arrived_ns)
        soon = after > 0 and each.arrived_ns - ends[after - 1] < SOON_NS
        (waited if soon else rest).append(each)
    return waited, rest


def undelayed(
    firsts: Iterable[FirstToken], steps: list[tuple[int, int]]
) -> tuple[list[FirstToken], list[FirstToken]]:
    """Those during whose whole way, from client to client, no such step was under way; the rest.

    `steps` as `steps_of_others` gives them: one after the other or overlapping a little.
    """
    free: list[FirstToken] = []
    met: list[FirstToken] = []
    begins = [start for start, _ in steps]
    for each in firsts:
        before = bisect_left(begins, each.read_ns)
        # Of two steps in flight the earlier may end later only by a hair: look at both.
        last = max((end for _, end in steps[max(0, before - 2) : before]), default=0)
        (met if last > each.sent_ns else free).append(each)
    return free, met
