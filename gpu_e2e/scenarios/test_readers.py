"""Clients that read slowly hold up themselves."""

from __future__ import annotations

import asyncio

import httpx

from conformance.endpoint import record_verdicts as judge
from conformance.endpoint import verdicts as client
from conformance.endpoint.driver import IDENTITY_FIELD
from conformance.endpoint.trace import Ask
from gpu_e2e.suite.live import Live, check
from gpu_e2e.suite.play import Client
from gpu_e2e.suite.users import FREE, limited

SHORT = {"ignore_eos": True}
SLOW = limited("slow-reader", 200)
QUICK = limited("beside-slow-reader", 50)
TOKENS = 300


def test_slow_reader(live: Live) -> None:
    """It sleeps 2 s over an answer of 1.5 s: the engine goes on at its pace, others at theirs."""

    async def read_slowly(driver: Client) -> int:
        body = {
            "model": driver.model,
            "prompt": "slowly",
            "max_tokens": TOKENS,
            "stream": True,
            "vllm_xargs": {IDENTITY_FIELD: SLOW},
            **SHORT,
        }
        url, got = driver.base_url + "/completions", 0
        async with (
            httpx.AsyncClient(timeout=60.0) as reader,
            reader.stream("POST", url, json=body) as answer,
        ):
            async for chunk in answer.aiter_bytes(64):
                if got == 0:
                    await asyncio.sleep(2.0)
                got += chunk.count(b"data: {")
        return got

    async def act(driver: Client) -> int:
        tasks = [
            driver.start(Ask(QUICK, "quick", 100, "quick", extra=SHORT))[1],
            driver.start(Ask(FREE, "free", 500, "free", extra=SHORT))[1],
        ]
        got = await read_slowly(driver)
        await asyncio.gather(*tasks)
        return got

    played = live.play(act)
    live.judge(
        played,
        check("read", played.result > 0, f"{played.result} chunks read in the end"),
        judge.rate(played.record, SLOW, played.promise(SLOW), min_seconds=1.2),
        client.completeness(played.streams),
        judge.evenness(played.record, QUICK, played.promise(QUICK)),
        judge.undisturbed(played.record, FREE),
    )
