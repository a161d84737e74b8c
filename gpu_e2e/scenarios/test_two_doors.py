"""Two processes that answer HTTP and one engine behind them: one quota, whichever door it was."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from conformance.endpoint import record_verdicts as judge
from conformance.endpoint import verdicts as client
from conformance.endpoint.trace import Ask, Stream
from gpu_e2e.engine.launch import Server
from gpu_e2e.suite.connections import by_process
from gpu_e2e.suite.leaving import cancel
from gpu_e2e.suite.live import Live, check
from gpu_e2e.suite.metrics import Metrics
from gpu_e2e.suite.play import Client
from gpu_e2e.suite.users import FREE, limited

SHORT = {"ignore_eos": True}
FLOOD = limited("two-doors-flood", 25)
BESIDE = limited("two-doors-beside", 50)
STREAMS = 48
TOKENS = 3
LEAVING = 12
APART_S = 0.005
LISTEN_S = 30.0


async def both_listen(server: Server) -> None:
    """The server answers when one of its processes does: wait until the other does too."""
    end = asyncio.get_running_loop().time() + LISTEN_S
    while asyncio.get_running_loop().time() < end:
        writers = []
        for _ in range(16):
            writers.append((await asyncio.open_connection("127.0.0.1", server.port))[1])
            await asyncio.sleep(APART_S)
        found = len(by_process(server.process.pid, server.port))
        for writer in writers:
            writer.close()
            await writer.wait_closed()
        if found == 2:
            return
        await asyncio.sleep(0.2)


@pytest.mark.flags("doors")
@pytest.mark.once("gcra", "async")
def test_a_flood_through_two_doors(live: Live) -> None:
    """It fills both with 60 streams; each of the others' answers, by either, is untouched."""
    server = live.need_own_server("a second process that answers HTTP")

    async def come(driver: Client, asks: list[Ask]) -> list[asyncio.Task[Stream]]:
        """One after the other: of connections that come at once one process may take all."""
        tasks = []
        for ask in asks:
            tasks.append(driver.start(ask)[1])
            await asyncio.sleep(APART_S)
        return tasks

    async def act(driver: Client) -> tuple[dict[int, int], Metrics]:
        await both_listen(server)
        asks = [Ask(FLOOD, f"flood {n}", TOKENS, f"flood-{n}", extra=SHORT) for n in range(STREAMS)]
        tasks = await come(driver, asks)
        more = [Ask(FLOOD, f"more {n}", 50, f"more-{n}", extra=SHORT) for n in range(LEAVING)]
        leaving = await come(driver, more)
        await asyncio.sleep(0.5)
        doors = by_process(server.process.pid, server.port)
        beside = driver.start(Ask(BESIDE, "beside", 120, "beside", extra=SHORT))[1]
        asks = [Ask(FREE, f"question {n}", 30, f"free-{n}", extra=SHORT) for n in range(12)]
        for ask in asks:  # one connection each, so some by either door
            await driver.one(ask)
        await cancel(leaving)
        await asyncio.gather(beside, *tasks)
        seen = await live.idle()
        # The same answers with nobody beside them.
        await driver.run([replace(ask, user=FREE) for ask in (beside.result().ask, *asks)])
        return doors, seen

    played = live.play(act)
    doors, seen = played.result
    free = played.of(FREE)
    kept = [s for s in played.of(FLOOD) if not s.cancelled]
    verdicts = [
        check("doors", len(doors) == 2, f"open streams by process: {sorted(doors.values())}"),
        check("figure-doors", True, f"{sorted(doors.values())} streams at the two doors"),
        client.completeness([*kept, *played.of(BESIDE), *free]),
        check("left", len(kept) == STREAMS, f"{LEAVING} left, {len(kept)} stayed"),
        judge.rate(played.record, FLOOD, played.promise(FLOOD), streams=STREAMS, min_seconds=4.0),
        judge.rate(played.record, BESIDE, played.promise(BESIDE), min_seconds=2.0),
        judge.evenness(played.record, BESIDE, played.promise(BESIDE)),
        judge.undisturbed(played.record, FREE),
        check("idle", seen.idle, f"{seen.running:g} running, {seen.waiting:g} waiting"),
    ]
    if live.options.same_tokens:
        # Of the same question the last answer is that of the quiet engine.
        verdicts.append(client.identical([*played.of(BESIDE), *free], free))
    live.judge(played, *verdicts)
