"""Answers that end by themselves, at a stop string, at the first token, or at once."""

from __future__ import annotations

from dataclasses import replace

from conformance.endpoint import record_verdicts as judge
from conformance.endpoint import verdicts as client
from conformance.endpoint.promise import SECOND_NS
from conformance.endpoint.trace import Ask
from gpu_e2e.suite.live import Live, check
from gpu_e2e.suite.play import Client
from gpu_e2e.suite.users import FREE, limited

ENDING = limited("ending", 20)
STOPPING = limited("stopping", 20)
ONES = limited("answers-of-one", 25)
TWOS = limited("answers-of-two", 25)
SHORT = {"ignore_eos": True}


def test_end_of_sequence(live: Live) -> None:
    """At known places while throttled, at the first token too; the look-ahead is lost, no more."""
    wanted = {f"ends-{tokens}": tokens for tokens in (1, 2, 13, 30)}
    asks = [
        Ask(ENDING, live.counting(f"count {tokens}", tokens), 60, name)
        for name, tokens in wanted.items()
    ]

    async def act(driver: Client) -> None:
        await driver.run(asks)
        await driver.run([replace(ask, user=FREE) for ask in asks])

    played = live.play(act)
    mine = played.of(ENDING)
    reasons = {s.label: s.finish_reason for s in mine}
    lost = sum(
        sum(played.record.lost.get(r, {}).values()) for s in mine for r in played.requests(s)
    )
    most = (live.depth - 1) * len(mine)
    verdicts = [
        client.completeness(mine, wanted),
        check("reason", set(reasons.values()) == {"stop"}, f"finish reasons {reasons}"),
        check("look-ahead", lost <= most, f"{lost} tokens lost to look-ahead, {most} possible"),
    ]
    if live.options.same_tokens:
        verdicts.append(client.identical(mine, played.of(FREE)))
    live.judge(played, *verdicts)


def test_stop_string(live: Live) -> None:
    """A stop string in the middle of a throttled answer."""
    prompt = "Say something long and then stop, as you were told to."

    async def act(driver: Client) -> str:
        free = await driver.one(Ask(FREE, prompt, 40, "whole", extra=SHORT))
        stop = free.text[20:26] or "?"
        asks = [
            Ask(user, prompt, 40, user, extra={"stop": [stop], **SHORT})
            for user in (FREE, STOPPING)
        ]
        await driver.run(asks)
        return stop

    played = live.play(act)
    stopped, free = played.of(STOPPING)[0], played.of(FREE)[-1]
    verdicts = [client.completeness([stopped])]
    if live.options.same_tokens:
        verdicts += [
            check("reason", stopped.finish_reason == "stop", f"ended by {stopped.finish_reason}"),
            check(
                "same",
                stopped.token_ids == free.token_ids and stopped.text == free.text,
                f"{stopped.text!r} before {played.result!r}, without a limit {free.text!r}",
            ),
        ]
    live.judge(played, *verdicts)


def test_floods_of_one_and_two_token_answers(live: Live) -> None:
    """Whoever asks for one token eighty times has still one quota, and all of it."""
    asks = [Ask(ONES, f"one {n}", 1, f"one-{n}", extra=SHORT) for n in range(80)]
    asks += [Ask(TWOS, f"two {n}", 2, f"two-{n}", extra=SHORT) for n in range(40)]

    played = live.play(lambda driver: driver.run(asks))
    verdicts = [client.completeness(played.streams)]
    for user in (ONES, TWOS):
        # Once all of them have arrived: only then does the user always want more.
        instants = [d.ns for d in played.record.of_user(user)]
        crowded = played.record.within(instants[0] + SECOND_NS, instants[-1])
        promise = played.promise(user)
        verdicts.append(judge.rate(crowded, user, promise, streams=20, min_seconds=1.8))
    live.judge(played, *verdicts)
