"""Prompts are free: long ones in chunks, and those that the prefix cache already holds."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from conformance.endpoint import record_verdicts as judge
from conformance.endpoint import verdicts as client
from conformance.endpoint.promise import SECOND_NS
from conformance.endpoint.trace import Ask
from conformance.endpoint.verdict import ms
from gpu_e2e.suite.live import Live, check
from gpu_e2e.suite.play import Client
from gpu_e2e.suite.raw import complete
from gpu_e2e.suite.servers import CHUNK
from gpu_e2e.suite.users import FREE, limited

SHORT = {"ignore_eos": True}
LONG = limited("long-prompts", 20)
BESIDE = limited("beside-long-prompts", 100)
CACHED = limited("cached", 20)
LAST = limited("one-token-left", 4)
LONG_TOKENS = 6 * CHUNK + 40


def words(name: str, tokens: int) -> str:
    """A prompt of that many tokens: one a byte in the tiny model."""
    text = f"{name} is a long prompt that nobody else has; "
    return (text * (tokens // len(text) + 1))[:tokens]


def test_long_prompts_beside_a_user_who_decodes(live: Live) -> None:
    """Three prompts of seven chunks each cost their user nothing, and others no step."""
    live.need_tiny("a prompt of a known number of tokens")

    async def act(driver: Client) -> None:
        free, free_task = driver.start(Ask(FREE, "on and on", 3000, "free", extra=SHORT))
        beside = driver.start(Ask(BESIDE, "one more", 150, "beside", extra=SHORT))[1]
        while len(free.token_ns) < 5:
            await asyncio.sleep(0.01)
        asks = [
            Ask(LONG, words(f"{n}", LONG_TOKENS), 30, f"long-{n}", extra=SHORT) for n in range(3)
        ]
        await driver.run(asks)
        await beside
        free_task.cancel()
        await free_task

    played = live.play(act)
    mine = played.of(LONG)
    prompts = [s.prompt_tokens for s in mine]
    # One stream alone gets a token a step, and a step with a chunk in it may be longer than 1/rate.
    spans = [played.dispatches(s) for s in mine]
    together = max(span[0].ns for span in spans), min(span[-1].ns for span in spans)
    live.judge(
        played,
        check("prompt", prompts == [LONG_TOKENS] * 3, f"prompts of {prompts} tokens, all free"),
        client.completeness([*mine, *played.of(BESIDE)]),
        judge.evenness(played.record, BESIDE, played.promise(BESIDE)),
        judge.undisturbed(played.record, FREE),
        # What is taken for a prompt that is not through in that step is given back.
        judge.rate(
            played.record.within(*together),
            LONG,
            played.promise(LONG),
            streams=3,
            min_seconds=1.8,
        ),
    )


def test_prefix_cache_hits(live: Live) -> None:
    """Full, partial, and all but one token: the same answer, the same charge."""
    live.need_tiny("a prompt of a known number of tokens")

    async def act(driver: Client) -> dict[str, int]:
        block = await _block(driver)
        base = words("cache", 3 * block + 1)
        partial = base[: 2 * block] + words("otherwise", block + 17)
        prompts = {"left one": base, "full": base[: 3 * block], "partial": partial}
        await complete(driver, FREE, base, 1)
        hits = {}
        for name, prompt in prompts.items():
            answer = await complete(driver, CACHED, prompt, 6)
            hits[name] = (answer["usage"]["prompt_tokens_details"] or {}).get("cached_tokens", 0)
            ask = Ask(CACHED, prompt, 6, name, extra=SHORT)
            await driver.run([ask, replace(ask, user=FREE)])
        return {name: tokens - 3 * block for name, tokens in hits.items()} | {"block": block}

    played = live.play(act)
    block = played.result["block"]
    wanted = {"left one": 0, "full": -block, "partial": -block, "block": block}
    verdicts = [
        check(
            "hits", played.result == wanted, f"hits against 3 blocks of {block}: {played.result}"
        ),
        client.completeness([s for s in played.of(CACHED) if s.token_ns]),
    ]
    if live.options.same_tokens:
        streamed = [s for s in played.of(CACHED) if s.token_ns]
        verdicts.append(client.identical(streamed, played.of(FREE)))
    live.judge(played, *verdicts)


def test_prefix_cache_hit_while_throttled(live: Live) -> None:
    """A hit that leaves one token, by a user out of quota: it waits, nobody behind it does."""
    live.need_tiny("a prompt of a known number of tokens")

    async def act(driver: Client) -> tuple[int, int]:
        block = await _block(driver)
        base = words("throttled hit", 2 * block + 1)
        await complete(driver, FREE, base, 1)
        _, first = driver.start(Ask(LAST, "uses it up", 8, "first", extra=SHORT))
        await asyncio.sleep(0.6)  # one token each 250 ms: out of quota now
        hits = [driver.start(Ask(LAST, base, 3, f"hit-{n}", extra=SHORT))[1] for n in range(3)]
        await asyncio.sleep(0.02)
        asked = driver.clock()
        other = await driver.one(Ask(FREE, "behind them", 20, "behind", extra=SHORT))
        await asyncio.gather(first, *hits)
        return asked, other.ended_ns or 0

    played = live.play(act)
    asked, ended = played.result
    others = [s for s in played.of(FREE) if s.label == "behind"]
    live.judge(
        played,
        client.completeness([s for s in played.streams if s.token_ns]),
        judge.evenness(played.record, LAST, played.promise(LAST)),
        check(
            "not-blocked",
            ended - asked < SECOND_NS and len(others[0].token_ns) == 20,
            f"20 tokens of a user behind them in {ms(ended - asked)} ms",
        ),
    )


async def _block(driver: Client) -> int:
    """The block size, as a repeated prompt shows it."""
    prompt = words("measuring", 700)
    for _ in range(2):
        answer = await complete(driver, FREE, prompt, 1)
    cached = (answer["usage"]["prompt_tokens_details"] or {}).get("cached_tokens", 0)
    # The hit is the largest multiple of the block below 700; blocks are powers of two up to 256.
    return next(size for size in (256, 128, 64, 32, 16) if cached == 699 // size * size)
