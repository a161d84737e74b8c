"""The engine's own record, arranged for judging: who was dispatched what, in which step, and when.

A client's clock cannot judge a dispatch; these instants are the engine's, in monotonic ns. The
events are those that the adapter writes (`sched_adapter.record` says what each one means).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from conformance.endpoint.promise import DEFAULT_BURST_NS, Even, Log, Promise


class Dispatch(NamedTuple):
    """One token position that a step was sent off to sample."""

    ns: int
    step: int
    user: str
    req: str
    charged: bool


class Wait(NamedTuple):
    """The engine slept, since everybody who had work was out of quota."""

    ns: int
    end_ns: int
    woke: str


class Throttled(NamedTuple):
    """A user was refused, and will have a token at `ready_ns`."""

    ns: int
    user: str
    ready_ns: int


class Finish(NamedTuple):
    """A request left the engine with so many tokens delivered."""

    ns: int
    user: str
    status: str
    tokens: int


@dataclass(slots=True)
class EngineRecord:
    """A record or a part of it, in the order of its instants."""

    meta: Mapping[str, Any]
    dispatches: list[Dispatch] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    throttled: list[Throttled] = field(default_factory=list)
    arrivals: dict[str, int] = field(default_factory=dict)  # by request, ns
    outputs: dict[str, list[int]] = field(default_factory=dict)  # of each token delivered, ns
    finishes: dict[str, Finish] = field(default_factory=dict)
    delivered: dict[str, int] = field(default_factory=dict)
    lost: dict[str, dict[str, int]] = field(default_factory=dict)
    refunds: dict[str, int] = field(default_factory=dict)
    depth: int = 0  # the most tokens of one request in flight at once
    truncated: bool = False

    @classmethod
    def load(cls, path: str | Path) -> EngineRecord:
        """Read a record file.

        Raises OSError or ValueError, in one line, where there is none or it is something else.
        """
        from sched_adapter.record import read

        return cls.of(read(path))

    @classmethod
    def of(cls, events: Iterable[Mapping[str, Any]]) -> EngineRecord:
        """Arrange events, the first of which is `meta`. Events of other kinds are passed over."""
        stream = iter(events)
        meta = next(stream, None)
        if meta is None or meta.get("e") != "meta":
            raise ValueError("not an engine record: its first event is not 'meta'")
        record = cls(meta=meta)
        delivered: dict[str, int] = defaultdict(int)
        outputs: dict[str, list[int]] = defaultdict(list)
        refunds: dict[str, int] = defaultdict(int)
        lost: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        in_flight: dict[str, int] = defaultdict(int)
        for event in stream:
            kind = event["e"]
            if kind == "dispatch":
                in_flight[event["req"]] += 1
                record.depth = max(record.depth, in_flight[event["req"]])
                record.dispatches.append(
                    Dispatch(
                        event["ns"], event["step"], event["user"], event["req"], event["charged"]
                    )
                )
            elif kind == "arrive":
                record.arrivals.setdefault(event["req"], event["ns"])
            elif kind == "output":
                in_flight[event["req"]] -= event["n"]
                delivered[event["req"]] += event["n"]
                outputs[event["req"]] += [event["ns"]] * event["n"]
            elif kind == "lost":
                in_flight[event["req"]] -= event["n"]
                lost[event["req"]][event["why"]] += event["n"]
            elif kind == "refund":
                refunds[event["user"]] += event.get("n", 1)
            elif kind == "wait":
                record.waits.append(Wait(event["ns"], event["end_ns"], event["woke"]))
            elif kind == "throttled":
                record.throttled.append(Throttled(event["ns"], event["user"], event["ready_ns"]))
            elif kind == "finish":
                record.finishes[event["req"]] = Finish(
                    event["ns"], event["user"], event["status"], event["tokens"]
                )
            elif kind == "truncated":
                record.truncated = True
        record.delivered = dict(delivered)
        record.outputs = dict(outputs)
        record.refunds = dict(refunds)
        record.lost = {req: dict(whys) for req, whys in lost.items()}
        return record

    def within(self, start_ns: int, end_ns: int) -> EngineRecord:
        """The dispatches, waits and spells of a closed stretch of time.

        What is kept by request (arrived, delivered, lost, finished) stays whole: it cannot be cut.
        """
        return EngineRecord(
            meta=self.meta,
            dispatches=[d for d in self.dispatches if start_ns <= d.ns <= end_ns],
            waits=[w for w in self.waits if w.end_ns >= start_ns and w.ns <= end_ns],
            throttled=[t for t in self.throttled if start_ns <= t.ns <= end_ns],
            arrivals=self.arrivals,
            outputs=self.outputs,
            finishes=self.finishes,
            delivered=self.delivered,
            lost=self.lost,
            refunds=self.refunds,
            depth=self.depth,
            truncated=self.truncated,
        )

    def users(self) -> list[str]:
        """Everybody who was dispatched something, in order of appearance."""
        return list(dict.fromkeys(d.user for d in self.dispatches))

    def of_user(self, user: str) -> list[Dispatch]:
        """A user's dispatches, in order."""
        return [d for d in self.dispatches if d.user == user]

    def by_request(self, user: str | None = None) -> dict[str, list[Dispatch]]:
        """Dispatches by request, in order of first appearance."""
        found: dict[str, list[Dispatch]] = {}
        for dispatch in self.dispatches:
            if user is None or dispatch.user == user:
                found.setdefault(dispatch.req, []).append(dispatch)
        return found

    def steps(self) -> list[tuple[int, int]]:
        """Instant and number of sampled positions of each step that sampled anything, in order."""
        counts: dict[tuple[int, int], int] = defaultdict(int)
        for dispatch in self.dispatches:
            counts[dispatch.ns, dispatch.step] += 1
        return [(ns, count) for (ns, _), count in sorted(counts.items())]

    def promise(self, user: str) -> Promise | None:
        """What this engine's limiter promised the user, None if it is unlimited.

        Raises ValueError for a backend whose promise is not known here: make it yourself.
        """
        text = self.meta["rates"].get(user, self.meta["default_rate"])
        if text is None:
            return None
        rate = Fraction(text)
        burst_ns = int(self.meta.get("burst_ns", DEFAULT_BURST_NS))
        name = self.meta["limiter"]
        if name in ("gcra", "token_bucket"):
            return Even(rate, burst_ns)
        if name == "rolling_window":
            return Log(rate, int(self.meta.get("window_ns") or burst_ns))
        raise ValueError(f"no promise known for limiter {name!r}: hand in your own")
