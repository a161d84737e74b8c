"""What an operator does to a running engine while users are throttled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from conformance.endpoint import record_verdicts as judge
from conformance.endpoint import verdicts as client
from conformance.endpoint.trace import Ask
from gpu_e2e.suite.live import Live, check
from gpu_e2e.suite.play import Client, Play
from gpu_e2e.suite.raw import post
from gpu_e2e.suite.users import FREE, limited

SHORT = {"ignore_eos": True}
PAUSED = limited("paused-engine", 20)
ASLEEP = limited("sleeping-engine", 20)
RESET = limited("reset-cache", 20)
TOKENS = 25
PAUSE_S = 1.5


def played_through(live: Live, user: str, calls: Sequence[str], pause_s: float) -> Play:
    """Two throttled streams; after half a second the calls, `pause_s` apart."""

    async def act(driver: Client) -> list[object]:
        asks = [Ask(user, f"{user} {n}", TOKENS, f"{user}-{n}", extra=SHORT) for n in range(2)]
        running = asyncio.gather(*(driver.start(ask)[1] for ask in asks))
        await asyncio.sleep(0.5)
        answers: list[object] = []
        for path in calls:
            if answers:
                await asyncio.sleep(pause_s)
            asked = driver.clock()
            answer = await post(driver, path, {})
            answers.append((answer.status_code, answer.text[:200], asked, driver.clock()))
        await running
        # One after the other, to compare with: the cache was reset under the first ones.
        await driver.run([Ask(FREE, ask.prompt, TOKENS, ask.name, extra=SHORT) for ask in asks])
        return answers

    played = live.play(act)
    codes = [answer[0] for answer in played.result]
    if 404 in codes:
        live.not_run("the server has no such endpoint: it needs VLLM_SERVER_DEV_MODE=1")
    return played


def judge_paused(live: Live, played: Play, user: str) -> None:
    """Nothing was cut, nothing was saved up, and while it stood nothing was dispatched."""
    (code, text, _, stopped), (code_2, text_2, resumed, _) = played.result
    instants = [d.ns for d in played.record.of_user(user)]
    # The first call is answered when the engine has stopped; it stays so until the next is sent.
    inside = [ns for ns in instants if stopped < ns < resumed]
    after = [ns for ns in instants if ns >= resumed]
    verdicts = [
        check("calls", code == code_2 == 200, f"{code} {text}, {code_2} {text_2}"),
        check("stood", not inside, f"{len(inside)} tokens while it stood, {len(after)} afterwards"),
        check("went-on", bool(after), f"{len(after)} tokens after it went on"),
        client.completeness(played.of(user)),
    ]
    if live.options.same_tokens:
        verdicts.append(client.identical(played.of(user), played.of(FREE)))
    live.judge(played, *verdicts)


def test_engine_pause_and_resume(live: Live) -> None:
    """The bound holds across the pause: the time that it stood is no credit."""
    played = played_through(live, PAUSED, ("/pause?mode=keep", "/resume"), PAUSE_S)
    judge_paused(live, played, PAUSED)


def test_sleep_and_wake(live: Live) -> None:
    """mode=keep; on CPU a sleeping engine frees no memory, it only stands still."""
    played = played_through(live, ASLEEP, ("/sleep?level=1&mode=keep", "/wake_up"), PAUSE_S)
    judge_paused(live, played, ASLEEP)


def test_prefix_cache_reset_while_throttled(live: Live) -> None:
    """Running requests are preempted and computed again: charged for no token twice."""
    played = played_through(live, RESET, ("/reset_prefix_cache?reset_running_requests=true",), 0)
    ((code, text, _, _),) = played.result
    verdicts = [
        check("reset", code == 200 and "true" in text, f"{code} {text}"),
        client.completeness(played.of(RESET)),
        judge.spread(played.record, RESET, most=2),
    ]
    if live.options.same_tokens:
        verdicts.append(client.identical(played.of(RESET), played.of(FREE)))
    live.judge(played, *verdicts)
