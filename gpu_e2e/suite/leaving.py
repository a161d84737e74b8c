"""Clients that leave, and what has to be true afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from conformance.endpoint import verdicts as client
from conformance.endpoint.promise import SECOND_NS, Log
from conformance.endpoint.trace import Ask, Stream
from conformance.endpoint.verdict import Verdict, ms
from gpu_e2e.suite.live import Live, check
from gpu_e2e.suite.metrics import Metrics
from gpu_e2e.suite.play import Client, Play

AFTER_TOKENS = 6
# What a client's cancellation may take to reach the engine: tenfold, and a busy host.
SLACK_NS = SECOND_NS

Leave = Callable[[Client], Awaitable[list[Stream]]]


@dataclass(frozen=True, slots=True)
class Departure:
    """What was held before, what is held after all had left, and the user's next answer."""

    before: Metrics
    freed: Metrics
    gone: list[Stream]
    after: Stream


async def cancel(tasks: list[asyncio.Task[Stream]]) -> list[Stream]:
    """Cancel streams that run; they are all over when this returns."""
    for task in tasks:
        task.cancel()
    return list(await asyncio.gather(*tasks))


def departure(live: Live, user: str, leave: Leave, tokens: int = AFTER_TOKENS) -> Play:
    """`leave` starts streams of the user and cancels them; its next one is asked at once."""

    async def act(driver: Client) -> Departure:
        before = await live.idle()
        gone = await leave(driver)
        ask = Ask(user, "and now", tokens, "after", extra={"ignore_eos": True})
        after = await driver.one(ask)
        return Departure(before, await live.idle(), gone, after)

    return live.play(act)


def verdicts(played: Play) -> list[Verdict]:
    """All that they held is free, and the user goes on at its pace."""
    seen: Departure = played.result
    user = seen.after.user or ""
    promise = played.promise(user)
    spacing = promise.k if isinstance(promise, Log) else 1
    first = played.dispatches(seen.after)[0].ns
    ended = max(s.ended_ns or 0 for s in seen.gone)
    # What was charged for those who left stays charged: the bound, judged over all of the play,
    # says that it did; this says that no more than that did.
    waited, most = first - max(seen.after.started_ns, ended), SLACK_NS
    most += int(spacing * SECOND_NS / promise.rate)
    freed, before = seen.freed, seen.before
    return [
        check(
            "free-again",
            freed.idle and freed.kv_usage <= before.kv_usage,
            f"{freed.running:g} running, {freed.waiting:g} waiting, KV usage {freed.kv_usage:.2%} "
            f"(before: {before.kv_usage:.2%})",
        ),
        check("gone", all(s.cancelled for s in seen.gone), f"{len(seen.gone)} streams left"),
        check("next", waited <= most, f"next answer begun after {ms(waited)} of {ms(most)} ms"),
        client.completeness([seen.after]),
    ]
