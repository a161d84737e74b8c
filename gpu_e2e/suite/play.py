"""One play of a scenario: what its clients saw and what the engine recorded meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from conformance.endpoint.driver import Driver
from conformance.endpoint.promise import Promise
from conformance.endpoint.record import Dispatch, EngineRecord
from conformance.endpoint.trace import Ask, Stream
from gpu_e2e.suite.tail import RecordTail
from gpu_e2e.suite.users import PROBE

SETTLE_S = 20.0
_LOOK_S = 0.05


class Client(Driver):
    """A driver that remembers its streams."""

    def __init__(self, base_url: str, model: str):
        super().__init__(base_url, model)
        self.streams: list[Stream] = []

    @property
    def root_url(self) -> str:
        return self.base_url.removesuffix("/v1")

    def start(self, ask: Ask) -> tuple[Stream, asyncio.Task[Stream]]:
        stream, task = super().start(ask)
        self.streams.append(stream)
        return stream, task

    def note(self, user: str | None, answer: dict[str, Any]) -> Stream:
        """Count an answer that came some other way, by its JSON, to the books."""
        usage = answer["usage"]
        tokens = usage.get("completion_tokens", usage.get("output_tokens"))
        stream = Stream(Ask(user, "", tokens), self.clock(), request_id=answer["id"])
        stream.completion_tokens, stream.ended_ns = tokens, self.clock()
        self.streams.append(stream)
        return stream


@dataclass(slots=True)
class Play:
    """What happened, from `start_ns` to `end_ns` (monotonic ns)."""

    record: EngineRecord
    result: Any = None
    streams: list[Stream] = field(default_factory=list)
    stall_ns: int = 0
    start_ns: int = 0
    end_ns: int = 0
    _known: list[str] = field(default_factory=list)
    _requests: dict[str, list[str]] = field(default_factory=dict)

    def of(self, user: str | None) -> list[Stream]:
        """The user's streams, in the order of their requests."""
        return [s for s in self.streams if s.user == user]

    def requests(self, stream: Stream) -> list[str]:
        """The engine's requests of a stream: several for n > 1, none if it never came that far."""
        if stream.request_id is None:
            return []
        if not self._known:  # the record is whole by now, and may be long
            seen = [*(d.req for d in self.record.dispatches), *self.record.finishes]
            self._known = list(dict.fromkeys(seen))
        if stream.request_id not in self._requests:
            mine = [req for req in self._known if stream.request_id in req]
            self._requests[stream.request_id] = mine
        return self._requests[stream.request_id]

    def dispatches(self, stream: Stream) -> list[Dispatch]:
        """The stream's dispatched tokens."""
        requests = self.requests(stream)
        return [d for d in self.record.dispatches if d.req in requests]

    def promise(self, user: str) -> Promise:
        """What the engine's limiter promises the user. Raises ValueError if nothing."""
        promise = self.record.promise(user)
        if promise is None:
            raise ValueError(f"the engine has no limit for {user}")
        return promise


def play(
    base_url: str,
    model: str,
    tail: RecordTail,
    act: Callable[[Client], Awaitable[Any]],
    *,
    settle: bool = True,
    timeout_s: float,
) -> Play:
    """Let `act` drive the server, and read what the engine recorded of it.

    `settle`: afterwards wait until the engine has ended all that it began, 20 s at most.
    Raises TimeoutError if `act` takes longer than `timeout_s`.
    """
    mark = tail.mark()
    return asyncio.run(_play(Client(base_url, model), tail, mark, act, settle, timeout_s))


async def _play(
    client: Client,
    tail: RecordTail,
    mark: int,
    act: Callable[[Client], Awaitable[Any]],
    settle: bool,
    timeout_s: float,
) -> Play:
    start_ns = client.clock()
    async with client:
        result = await asyncio.wait_for(act(client), timeout_s)
        end_ns, stall_ns = client.clock(), client.stall_ns
        streams = list(client.streams)
        events = await _settled(client, tail, mark) if settle else tail.since(mark)
    events = [e for e in events if e.get("user") != PROBE or e["e"] == "meta"]
    return Play(EngineRecord.of(events), result, streams, stall_ns, start_ns, end_ns)


async def _settled(client: Client, tail: RecordTail, mark: int) -> list[dict[str, Any]]:
    """Ask for one token more: once its end is in the record, all before it is."""
    deadline = client.clock() + int(SETTLE_S * 1e9)
    while True:
        probe = await client.one(Ask(PROBE, "Bye", 1, name="probe"))
        await asyncio.sleep(_LOOK_S)
        events = tail.since(mark)
        ended = {e["req"] for e in events if e["e"] == "finish"}
        begun = {e["req"] for e in events if e["e"] == "dispatch"}
        seen = probe.request_id is not None and any(probe.request_id in req for req in ended)
        if (seen and begun <= ended) or client.clock() > deadline:
            return events
