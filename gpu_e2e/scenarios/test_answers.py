"""Answers of other shapes: several at once, held to a schema, with log probabilities."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from conformance.endpoint import record_verdicts as judge
from gpu_e2e.suite.live import Live, check
from gpu_e2e.suite.play import Client
from gpu_e2e.suite.raw import ask, complete
from gpu_e2e.suite.users import FREE, limited

FOUR = limited("four-answers", 20)
SCHEMA_USER = limited("structured", 20)
PROBABLE = limited("logprobs", 20)
SCHEMA = {
    "type": "object",
    "properties": {
        "colour": {"enum": ["red", "green", "blue"]},
        "sizes": {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 3, "maxItems": 3},
    },
    "required": ["colour", "sizes"],
    "additionalProperties": False,
}


def test_four_answers_of_one_request(live: Live) -> None:
    """n=4 is four streams of one user: charged for each, in turns."""

    async def act(driver: Client) -> Any:
        # Greedy sampling would give four times the same; vLLM refuses that. No seed: vLLM 0.32.0
        # for the CPU dies of a seeded request whose prompt takes more than one step.
        return await complete(driver, FOUR, "four of a kind", 18, n=4, temperature=1)

    played = live.play(act)
    answer = played.result
    reasons = [choice["finish_reason"] for choice in answer["choices"]]
    tokens = answer["usage"]["completion_tokens"]
    promise = played.promise(FOUR)
    live.judge(
        played,
        check("four", tokens == 72 and reasons == ["length"] * 4, f"{tokens} tokens, {reasons}"),
        judge.rate(played.record, FOUR, promise, streams=4, min_seconds=2.5),
        judge.spread(played.record, FOUR),
    )


def test_structured_output(live: Live) -> None:
    """Held to a JSON schema, throttled or not: the same text, and it is JSON."""
    body = {
        "messages": [{"role": "user", "content": "Tell me in JSON."}],
        "max_tokens": 80,
        "temperature": 0,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "it", "schema": SCHEMA, "strict": True},
        },
    }

    async def act(driver: Client) -> list[dict[str, Any]]:
        one = await ask(driver, "/v1/chat/completions", FREE, body)
        both = [ask(driver, "/v1/chat/completions", SCHEMA_USER, body) for _ in range(2)]
        return [one, *await asyncio.gather(*both)]

    played = live.play(act)
    texts = [answer["choices"][0]["message"]["content"] for answer in played.result]
    parsed = [json.loads(text) for text in texts]
    fits = all(set(p) == {"colour", "sizes"} and len(p["sizes"]) == 3 for p in parsed)
    verdicts = [check("schema", fits, f"{texts[1]!r}")]
    if live.options.same_tokens:
        verdicts.append(check("same", len(set(texts)) == 1, f"{len(texts)} answers, {set(texts)}"))
    live.judge(played, *verdicts)


def test_log_probabilities(live: Live) -> None:
    """As without a limit: the same tokens, and the same probabilities up to the batch's noise."""

    async def act(driver: Client) -> list[dict[str, Any]]:
        free = await complete(driver, FREE, "how likely", 16, logprobs=3)
        return [free, await complete(driver, PROBABLE, "how likely", 16, logprobs=3)]

    played = live.play(act)
    free, mine = (answer["choices"][0]["logprobs"] for answer in played.result)
    values = mine["token_logprobs"]
    verdicts = [check("logprobs", len(values) == 16, f"{len(values)} log probabilities")]
    if live.options.same_tokens:
        apart = max(abs(a - b) for a, b in zip(free["token_logprobs"], values, strict=True))
        same = free["tokens"] == mine["tokens"] and apart < 0.05
        verdicts.append(check("same", same, f"at most {apart:.4f} from those without a limit"))
    live.judge(played, *verdicts)
