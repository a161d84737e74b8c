"""Every endpoint that generates charges the same user, and a bad identity opens none of them."""

from __future__ import annotations

import asyncio
from typing import Any

from conformance.endpoint import record_verdicts as judge
from conformance.endpoint import verdicts as client
from conformance.endpoint.driver import IDENTITY_FIELD
from conformance.endpoint.trace import Ask
from gpu_e2e.suite.live import Live, check
from gpu_e2e.suite.play import Client
from gpu_e2e.suite.raw import ask, post
from gpu_e2e.suite.users import FREE, limited

EVERY_DOOR = limited("every-door", 20)
GOOD = limited("good-identity", 40)
TOKENS = 12
MESSAGES = [{"role": "user", "content": "Which door is this?"}]
DOORS: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "Which door", "max_tokens": TOKENS, "ignore_eos": True},
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": TOKENS, "ignore_eos": True},
    "/v1/responses": {"input": "Which door", "max_output_tokens": TOKENS, "ignore_eos": True},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": TOKENS},
}
BAD: list[Any] = ["", [], ["a", 1], 5.5, "x" * 300, "a\u0007b", {}, float("nan")]


def test_completions_chat_responses_and_messages(live: Live) -> None:
    """At once, by one user: one quota, and each answer's usage is what was charged."""
    live.need_tiny("an answer on every endpoint that never ends by itself")

    async def act(driver: Client) -> list[dict[str, Any]]:
        return list(
            await asyncio.gather(*(ask(driver, d, EVERY_DOOR, body) for d, body in DOORS.items()))
        )

    played = live.play(act)
    used = {d: s.completion_tokens for d, s in zip(DOORS, played.of(EVERY_DOOR), strict=False)}
    counts = [s.completion_tokens for s in played.of(EVERY_DOOR)]
    live.judge(
        played,
        check("doors", counts == [TOKENS] * len(DOORS), f"tokens by usage: {used}"),
        judge.rate(
            played.record, EVERY_DOOR, played.promise(EVERY_DOOR), streams=4, min_seconds=1.5
        ),
        judge.spread(played.record, EVERY_DOOR),
    )


def test_bad_identities_beside_good_streams(live: Live) -> None:
    """Each is a 400 in one sentence; the engine lives, and nobody else notices."""

    async def act(driver: Client) -> list[tuple[int, str]]:
        tasks = [
            driver.start(Ask(user, f"good {user}", tokens, user, extra={"ignore_eos": True}))[1]
            for user, tokens in ((GOOD, 60), (FREE, 400))
        ]
        answers = []
        for bad in BAD:
            for door in ("/v1/completions", "/v1/chat/completions"):
                body = {**DOORS[door], "model": driver.model, "vllm_xargs": {IDENTITY_FIELD: bad}}
                answers.append(await _post_anything(driver, door, body))
        await asyncio.gather(*tasks)
        return answers

    played = live.play(act)
    wrong = [a for a in played.result if not 400 <= a[0] < 500]
    live.judge(
        played,
        check("refused", not wrong, f"{len(played.result)} refused, {len(wrong)} not: {wrong[:2]}"),
        client.completeness(played.streams),
        judge.evenness(played.record, GOOD, played.promise(GOOD)),
        judge.undisturbed(played.record, FREE),
    )


async def _post_anything(driver: Client, door: str, body: dict[str, Any]) -> tuple[int, str]:
    if body["vllm_xargs"][IDENTITY_FIELD] != body["vllm_xargs"][IDENTITY_FIELD]:
        # Not a number: Python's json writes it, though JSON has no such thing.
        import json

        import httpx

        async with httpx.AsyncClient(timeout=60.0) as client_:
            headers = {"Content-Type": "application/json"}
            answer = await client_.post(
                driver.root_url + door, content=json.dumps(body), headers=headers
            )
    else:
        answer = await post(driver, door, body)
    return answer.status_code, answer.text[:200]
