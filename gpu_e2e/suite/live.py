"""What a scenario gets: a running server with its limits, and a place for its verdicts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pytest

from conformance.endpoint import record_verdicts
from conformance.endpoint.record import Dispatch, EngineRecord
from conformance.endpoint.record_measures import gaps_while_wanting
from conformance.endpoint.verdict import Verdict
from conformance.rules import Pace
from gpu_e2e.engine.launch import Server
from gpu_e2e.engine.vocabulary import counting_prompt
from gpu_e2e.suite import metrics
from gpu_e2e.suite.options import Options
from gpu_e2e.suite.play import Client, Play, play
from gpu_e2e.suite.results import Scenario
from gpu_e2e.suite.servers import Key
from gpu_e2e.suite.tail import RecordTail
from gpu_e2e.suite.totals import totals

CROWD = 20  # users; of more, each that holds its bound is not a line of the report


@dataclass(slots=True)
class Live:
    """One server as a scenario sees it."""

    key: Key
    options: Options
    base_url: str
    tail: RecordTail
    scenario: Scenario
    tiny: bool  # whether it serves the project's own model, whose answers end at known places
    server: Server | None = None  # None: somebody else's, at --base-url
    shared: dict[str, Play] = field(default_factory=dict)

    @property
    def root_url(self) -> str:
        return self.base_url.removesuffix("/v1")

    @property
    def depth(self) -> int:
        """Tokens of one request that this engine has in flight at most."""
        return 1 if self.key.mode == "sync" else 2

    def play(
        self,
        act: Callable[[Client], Awaitable[Any]],
        *,
        settle: bool = True,
        timeout_s: float | None = None,
    ) -> Play:
        """Drive the server; the engine's record of it comes with the result."""
        model, most = self.options.served_as, timeout_s or self.options.patience
        return play(self.base_url, model, self.tail, act, settle=settle, timeout_s=most)

    def once(
        self, name: str, act: Callable[[Client], Awaitable[Any]], *, timeout_s: float | None = None
    ) -> Play:
        """The same play for several scenarios of this server; the first one pays for it."""
        if name not in self.shared:
            self.shared[name] = self.play(act, timeout_s=timeout_s)
        return self.shared[name]

    def judge(self, played: Play, *verdicts: Verdict, books: bool = True) -> None:
        """`judge` for this scenario."""
        judge(self.scenario, played, *verdicts, books=books)

    def draw(self, played: Play, *names: str) -> None:
        """Keep what the report plots: the users' tokens, their gaps, and the batch sizes."""
        for user in names:
            instants = [d.ns for d in played.record.of_user(user)]
            if not instants:
                continue
            promise = played.promise(user)
            title = f"{user}: {float(promise.rate):g} tok/s"
            rate = float(promise.rate)
            self.scenario.paces.append(Pace(title, tuple(instants), promise.most, rate))
            gaps = gaps_while_wanting(played.record, user)
            self.scenario.gaps_ns[user] = [after - before for before, after in gaps]
        self.scenario.batches = played.record.steps()

    def counting(self, text: str, tokens: int) -> str:
        """A prompt whose answer ends by itself after so many tokens; needs the tiny model."""
        self.need_tiny("an answer that ends at a known place")
        return counting_prompt(text, tokens)

    def need_tiny(self, what: str) -> None:
        """Not run with a model whose answers are not known."""
        if not self.tiny:
            self.not_run(f"{what} needs the project's own model")

    def need_own_server(self, what: str) -> Server:
        """Not run at --base-url."""
        if self.server is None:
            self.not_run(f"{what} cannot be done to a server that this run did not start")
        return self.server

    def not_run(self, why: str) -> NoReturn:
        """Leave the scenario out, and say so in the summary."""
        self.scenario.why = why
        pytest.skip(why)

    async def metrics(self) -> metrics.Metrics:
        """The server's metrics now."""
        return await metrics.fetch(self.root_url)

    async def idle(self, within_s: float = 10.0) -> metrics.Metrics:
        """The metrics once nothing runs or waits, or what they are after `within_s`."""
        deadline = asyncio.get_running_loop().time() + within_s
        while True:
            seen = await self.metrics()
            if seen.idle or asyncio.get_running_loop().time() > deadline:
                return seen
            await asyncio.sleep(0.1)


def judge(scenario: Scenario, played: Play, *verdicts: Verdict, books: bool = True) -> None:
    """Note the verdicts, with those that every play is held to, and fail if one is broken.

    `books`: whether the play has ended all its requests, so that the ledger can be closed.
    """
    record = played.record
    common = [record_verdicts.whole(record), *_bounds(record)]
    if books:
        common += [record_verdicts.ledger(record), _all_ended(record), totals(played)]
    found = [*common, *verdicts]
    scenario.verdicts += found
    broken = [str(v) for v in found if not v.ok]
    if broken:
        pytest.fail("\n".join(broken), pytrace=False)


def _bounds(record: EngineRecord) -> list[Verdict]:
    """One for each limited user; those of a crowd that hold are summed up."""
    own: dict[str, list[Dispatch]] = {}
    for dispatch in record.dispatches:
        own.setdefault(dispatch.user, []).append(dispatch)
    found = []
    for user, dispatches in own.items():
        promise = record.promise(user)
        if promise is not None:
            part = EngineRecord(record.meta, dispatches)
            found.append(record_verdicts.bound(part, user, promise))
    held = [verdict for verdict in found if verdict.ok]
    if len(held) <= CROWD:
        return found
    tokens = sum(len(dispatches) for dispatches in own.values())
    message = f"all windows of {len(held)} users within their promises, of {tokens} tokens"
    return [*(v for v in found if not v.ok), check("bound", True, message, users=len(held))]


def check(rule: str, ok: bool, message: str, **figures: object) -> Verdict:
    """A verdict of a scenario's own."""
    return Verdict(rule, bool(ok), message, figures)


def _all_ended(record: Any) -> Verdict:
    open_ones = [req for req in record.by_request() if req not in record.finishes]
    message = f"{len(record.finishes)} requests ended, {len(open_ones)} did not"
    return Verdict("all-ended", not open_ones, message, {"open": len(open_ones)})
