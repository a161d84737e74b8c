"""Several streams of several users at once, and no identity at all."""

from __future__ import annotations

from dataclasses import replace

from conformance.endpoint import record_verdicts as judge
from conformance.endpoint import verdicts as client
from conformance.endpoint.trace import Ask
from gpu_e2e.suite.live import Live
from gpu_e2e.suite.play import Client
from gpu_e2e.suite.users import ANONYMOUS, FREE, limited

SHORT = {"ignore_eos": True}
STREAMS = {limited("several-a", 30): 3, limited("several-b", 60): 5, limited("several-c", 15): 2}
limited(ANONYMOUS, 25)
SECONDS = 4


def test_several_streams_of_several_users(live: Live) -> None:
    """Each user has its own pace over all of its streams, and they take turns."""
    rates = {"several-a": 30, "several-b": 60, "several-c": 15}
    asks = [
        Ask(user, f"{user} {n}", rates[user] * SECONDS // streams, f"{user}-{n}", extra=SHORT)
        for user, streams in STREAMS.items()
        for n in range(streams)
    ]

    async def act(driver: Client) -> None:
        await driver.run(asks)
        await driver.run([replace(ask, user=FREE) for ask in asks])

    played = live.play(act)
    verdicts = []
    for user, streams in STREAMS.items():
        promise = played.promise(user)
        verdicts += [
            judge.rate(played.record, user, promise, streams=streams, min_seconds=SECONDS - 1),
            judge.evenness(played.record, user, promise),
            judge.spread(played.record, user),
            client.completeness(played.of(user)),
        ]
        if live.options.same_tokens:
            verdicts.append(client.identical(played.of(user), played.of(FREE)))
    live.draw(played, *STREAMS)
    live.judge(played, *verdicts)


def test_anonymous_users_share_one_quota(live: Live) -> None:
    """Requests that name nobody, on both doors: one user, one limit, turns between them."""
    doors = ("completions", "chat", "completions", "chat")
    asks = [
        Ask(None, f"who {n}", 20, f"nobody-{n}", door, extra=SHORT) for n, door in enumerate(doors)
    ]

    played = live.play(lambda driver: driver.run(asks))
    promise = played.promise(ANONYMOUS)
    live.judge(
        played,
        judge.rate(played.record, ANONYMOUS, promise, streams=4, min_seconds=2.5),
        judge.spread(played.record, ANONYMOUS),
        client.completeness(played.streams),
    )
