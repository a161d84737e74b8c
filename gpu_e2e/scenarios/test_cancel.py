"""Clients that leave: what they held is free at once, what was charged stays charged."""

from __future__ import annotations

import asyncio

from conformance.endpoint.trace import Ask, Stream
from gpu_e2e.suite.leaving import cancel, departure, verdicts
from gpu_e2e.suite.live import Live
from gpu_e2e.suite.play import Client
from gpu_e2e.suite.users import limited

SHORT = {"ignore_eos": True}
BEFORE = limited("leaves-before-a-token", 4)
MIDWAY = limited("leaves-midway", 20)
THROTTLED = limited("leaves-while-throttled", "0.5")
CROWD = limited("fifty-leave", 20)


def test_cancelled_before_the_first_token(live: Live) -> None:
    """Asked while another stream has used the quota up, and gone before they had a turn."""

    async def leave(driver: Client) -> list[Stream]:
        first = driver.start(Ask(BEFORE, "first", 40, "first", extra=SHORT))[1]
        await asyncio.sleep(0.6)
        asks = [Ask(BEFORE, f"quick {n}", 9, f"quick-{n}", cancel_after=0) for n in range(4)]
        return [*await driver.run(asks), *await cancel([first])]

    played = departure(live, BEFORE, leave)
    live.judge(played, *verdicts(played))


def test_cancelled_midway(live: Live) -> None:
    """After 5, 6 and 7 tokens."""

    async def leave(driver: Client) -> list[Stream]:
        asks = [
            Ask(MIDWAY, f"mid {n}", 100, f"mid-{n}", cancel_after=5 + n, extra=SHORT)
            for n in range(3)
        ]
        return await driver.run(asks)

    played = departure(live, MIDWAY, leave)
    live.judge(played, *verdicts(played))


def test_cancelled_while_throttled(live: Live) -> None:
    """In the middle of a pause of 2 s; the next answer waits for the same instant."""

    async def leave(driver: Client) -> list[Stream]:
        asks = [Ask(THROTTLED, f"slow {n}", 9, f"slow-{n}", extra=SHORT) for n in range(3)]
        tasks = [driver.start(ask)[1] for ask in asks]
        await asyncio.sleep(0.5)
        return await cancel(tasks)

    played = departure(live, THROTTLED, leave, tokens=2)
    live.judge(played, *verdicts(played))


def test_fifty_cancelled_at_once(live: Live) -> None:
    """All of a crowd in one moment."""

    async def leave(driver: Client) -> list[Stream]:
        asks = [Ask(CROWD, f"crowd {n}", 100, f"crowd-{n}", extra=SHORT) for n in range(50)]
        tasks = [driver.start(ask)[1] for ask in asks]
        await asyncio.sleep(1.5)
        return await cancel(tasks)

    played = departure(live, CROWD, leave)
    live.judge(played, *verdicts(played))
