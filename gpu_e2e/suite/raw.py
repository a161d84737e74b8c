"""Requests without a stream, on any endpoint, for what the streaming driver does not show."""

from __future__ import annotations

from typing import Any

import httpx

from conformance.endpoint.driver import IDENTITY_FIELD
from gpu_e2e.suite.play import Client

TIMEOUT_S = 120.0


async def post(driver: Client, path: str, body: dict[str, Any]) -> httpx.Response:
    """POST JSON to the server, without counting anything."""
    async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
        return await client.post(driver.root_url + path, json=body)


async def ask(driver: Client, path: str, user: str, body: dict[str, Any]) -> dict[str, Any]:
    """The answer, counted to the user's books. Raises httpx.HTTPStatusError."""
    whole = {"model": driver.model, "vllm_xargs": {IDENTITY_FIELD: user}, **body}
    answer = await post(driver, path, whole)
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    driver.note(user, found)
    return found


async def complete(
    driver: Client, user: str, prompt: str, tokens: int, **more: Any
) -> dict[str, Any]:
    """A completion of so many tokens at temperature 0."""
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **more}
    return await ask(driver, "/v1/completions", user, body)
