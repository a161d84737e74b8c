"""The pace of a user, whatever the limit: the article's two-user matrix, and its extremes.

One play for all of them; their users share the engine and nothing else.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from conformance.endpoint import record_verdicts as judge
from conformance.endpoint import verdicts as client
from conformance.endpoint.promise import SECOND_NS
from conformance.endpoint.record_measures import gaps_while_wanting, lateness_ns
from conformance.endpoint.trace import Ask
from conformance.endpoint.verdict import Verdict, ms, percentile
from gpu_e2e.suite import silence
from gpu_e2e.suite.live import Live, check
from gpu_e2e.suite.play import Client, Play
from gpu_e2e.suite.users import FREE, limited, rate_of

TOKENS = 200  # of each stream, as in the article
STREAMS = {
    limited("matrix-20-one-stream", 20): 1,
    limited("matrix-20-four-streams", 20): 4,
    limited("matrix-100-one-stream", 100): 1,
    limited("matrix-100-four-streams", 100): 4,
}
HALF = limited("half-a-token", "0.5")
HALF_TOKENS = 12
PAUSED = limited("long-pause", "0.04")  # a token in 25 s
THOUSAND = limited("a-thousand", 1000)
THOUSAND_STREAMS = 16
THOUSAND_TOKENS = 150
SHORT = {"ignore_eos": True}
# A user at 0.99 of a fast limit for 2 s and of a slow one for 10 s.
LEAST_S = 1.8
# 800 tokens at 20 a second take 40 s.
TIMEOUT_S = 150.0


def asks(user: str, streams: int, tokens: int) -> list[Ask]:
    return [
        Ask(user, f"{n}: a story of {user}, please.", tokens, f"{user}-{n}", extra=SHORT)
        for n in range(streams)
    ]


async def everybody(driver: Client) -> None:
    await driver.one(Ask(FREE, "warm up", 4, name="warm-up", extra=SHORT))
    slow = [*asks(HALF, 1, HALF_TOKENS), *asks(PAUSED, 1, 2)]
    matrix = [ask for user, streams in STREAMS.items() for ask in asks(user, streams, TOKENS)]
    running = asyncio.gather(*(driver.start(ask)[1] for ask in [*matrix, *slow]))
    await asyncio.sleep(15.0)  # after the fast ones, so that nothing but the slow ones is disturbed
    await driver.run(asks(THOUSAND, THOUSAND_STREAMS, THOUSAND_TOKENS))
    await running
    # The same answers without a limit, to compare with.
    await driver.run([replace(ask, user=FREE) for ask in matrix])


def the_play(live: Live) -> Play:
    return live.once("pace", everybody, timeout_s=TIMEOUT_S)


def judged(played: Play, user: str, streams: int) -> list[Verdict]:
    """Rate, evenness and turns by the engine's record."""
    promise = played.promise(user)
    return [
        judge.rate(played.record, user, promise, streams=streams, min_seconds=LEAST_S),
        judge.evenness(played.record, user, promise),
        judge.spread(played.record, user),
    ]


def test_matrix_of_two_limits(live: Live) -> None:
    played = the_play(live)
    verdicts = []
    for user, streams in STREAMS.items():
        mine = judged(played, user, streams)
        figures = mine[0].figures
        late = lateness_ns(played.record, user)
        gaps = [b - a for a, b in gaps_while_wanting(played.record, user)]
        instants = sorted(ns for s in played.of(user) for ns in s.token_ns)
        seen = len(instants) * SECOND_NS / max(1, instants[-1] - instants[0])
        message = (
            f"limit {rate_of(user)}, {streams} streams: {figures['tok_s']} tok/s by the engine, "
            f"{seen:.1f} by the client; gap p99 {ms(percentile(gaps, 99))} ms; "
            f"late p50 {ms(percentile(late, 50))}, p99 {ms(percentile(late, 99))} ms"
        )
        verdicts += [*mine, check("figure-pace", True, message)]
        verdicts.append(client.completeness(played.of(user)))
        if live.options.same_tokens:
            verdicts.append(client.identical(played.of(user), played.of(FREE)))
    live.draw(played, *STREAMS)
    live.judge(played, *verdicts)


def test_half_a_token_a_second(live: Live) -> None:
    played = the_play(live)
    live.draw(played, HALF)
    live.judge(played, *judged(played, HALF, 1), client.completeness(played.of(HALF)))


def test_a_thousand_tokens_a_second(live: Live) -> None:
    """Its bound on any host; its rate only where the steps are short enough to reach it."""
    played = the_play(live)
    live.draw(played, THOUSAND)
    verdicts = judged(played, THOUSAND, THOUSAND_STREAMS)
    instants = [d.ns for d in played.record.of_user(THOUSAND)]
    got = len(instants) * SECOND_NS / (instants[-1] - instants[0])
    message = f"limit 1000: {got:.0f} tok/s with {THOUSAND_STREAMS} streams"
    verdicts[0] = check("figure-pace", True, message, tok_s=round(got, 1))
    live.judge(played, *verdicts, client.completeness(played.of(THOUSAND)))


def test_a_stream_stays_open_through_a_long_pause(live: Live) -> None:
    """25 s without a byte: neither end of the connection may give it up."""
    played = the_play(live)
    stream = played.of(PAUSED)[0]
    promise = played.promise(PAUSED)
    dispatched = [d.ns for d in played.dispatches(stream)]
    live.judge(
        played,
        client.completeness([stream]),
        judge.evenness(played.record, PAUSED, promise),
        *silence.pauses(dispatched, stream.token_ns, promise, rate_of(PAUSED)),
    )
