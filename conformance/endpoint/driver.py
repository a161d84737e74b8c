"""Drive a running OpenAI-compatible endpoint: many users, many streams each, every token timed.

    async with Driver("http://127.0.0.1:8000/v1", "tiny") as driver:
        streams = await driver.run([Ask("alice", "Hello", 60), Ask("bob", "Hi", 60)])
    print(driver.stall_ns)

Tokens are counted by their ids (`return_token_ids`), or by the server's running usage where it
sends no ids; never by chunks, since one chunk may carry several tokens or none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

import httpx
import openai

from conformance.endpoint.stall import StallWatch
from conformance.endpoint.trace import Ask, Stream

IDENTITY_FIELD = "output_rate_user"

# A throttled stream is silent for long, on purpose; the connection itself must come quickly.
_TIMEOUT = openai.Timeout(connect=30.0, read=600.0, write=30.0, pool=600.0)


class Driver:
    """An OpenAI client that times tokens. Use it as an async context manager.

    Args:
        base_url: the endpoint's address, ending in /v1.
        model: the served model's name.
        api_key: sent as it is; most local servers ask for none.
        clock: monotonic ns.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str = "none",
        clock: Callable[[], int] = time.monotonic_ns,
    ):
        self.base_url = base_url
        self.model = model
        self.clock = clock
        self._api_key = api_key
        self._watch = StallWatch(clock)
        self._client: openai.AsyncOpenAI | None = None

    @property
    def stall_ns(self) -> int:
        """J: the largest stall of this client so far, in ns."""
        return self._watch.worst_ns

    async def __aenter__(self) -> Driver:
        # No retries: a request sent twice would be generated, and charged, twice. So no connection
        # is used again either: a server closes idle ones, perhaps just when a request is sent.
        once = openai.DefaultAsyncHttpxClient(limits=httpx.Limits(max_keepalive_connections=0))
        self._client = openai.AsyncOpenAI(
            base_url=self.base_url,
            api_key=self._api_key,
            max_retries=0,
            timeout=_TIMEOUT,
            http_client=once,
        )
        await self._watch.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._watch.__aexit__(kind, value, trace)
        if self._client is not None:
            await self._client.close()

    def start(self, ask: Ask) -> tuple[Stream, asyncio.Task[Stream]]:
        """Send a request now; the stream fills while the task runs. The task never raises."""
        stream = Stream(ask=ask, started_ns=self.clock())
        return stream, asyncio.get_running_loop().create_task(self._follow(stream))

    async def run(self, asks: Iterable[Ask]) -> list[Stream]:
        """Send all requests at once and wait for all of them."""
        return list(await asyncio.gather(*(self.start(ask)[1] for ask in asks)))

    async def one(self, ask: Ask) -> Stream:
        """Send one request and wait for it."""
        return await self.start(ask)[1]

    async def _follow(self, stream: Stream) -> Stream:
        try:
            await self._read(stream)
        except asyncio.CancelledError:
            stream.cancelled = True
        except openai.APIStatusError as error:
            stream.error = f"HTTP {error.status_code}: {error.message}"
        except Exception as error:
            # Whatever the transport under the client raises in the middle of a stream: an answer
            # that broke off is a finding, and must not take the other streams with it.
            stream.error = f"{type(error).__name__}: {error}"
        stream.ended_ns = self.clock()
        return stream

    async def _read(self, stream: Stream) -> None:
        limit = stream.ask.cancel_after
        chunks = await self._open(stream.ask)
        try:
            if limit == 0:
                stream.cancelled = True
                return
            async for chunk in chunks:
                self._take(stream, chunk, self.clock())
                # What has come already is read without a pause, and a fast stream would keep the
                # loop to itself for seconds: let the others read theirs.
                await asyncio.sleep(0)
                if limit is not None and len(stream.token_ns) >= limit:
                    stream.cancelled = True
                    return
        finally:
            await chunks.close()

    async def _open(self, ask: Ask) -> Any:
        if self._client is None:
            raise RuntimeError("the driver is not open: use it in `async with`")
        body: dict[str, Any] = {"return_token_ids": True, **ask.extra}
        if ask.user is not None:
            body["vllm_xargs"] = {IDENTITY_FIELD: ask.user}
        common: dict[str, Any] = {
            "model": self.model,
            "max_tokens": ask.max_tokens,
            "temperature": ask.temperature,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "extra_body": body,
        }
        if ask.door == "chat":
            messages: Any = [{"role": "user", "content": ask.prompt}]
            return await self._client.chat.completions.create(messages=messages, **common)
        return await self._client.completions.create(prompt=ask.prompt, **common)

    @staticmethod
    def _take(stream: Stream, chunk: Any, now_ns: int) -> None:
        """Count what a chunk carries. Usage comes last with no choice at all."""
        stream.request_id = chunk.id
        new = 0
        for choice in chunk.choices:
            ids = getattr(choice, "token_ids", None)
            if ids:
                stream.token_ids.extend(ids)
                new += len(ids)
            stream.text += _text(choice)
            if choice.finish_reason is not None:
                stream.finish_reason = choice.finish_reason
        usage = chunk.usage
        if usage is not None:
            stream.completion_tokens = usage.completion_tokens
            stream.prompt_tokens = usage.prompt_tokens
            if not stream.token_ids and usage.completion_tokens > len(stream.token_ns):
                stream.tokens_by = "usage"
                new = usage.completion_tokens - len(stream.token_ns)
        stream.token_ns.extend([now_ns] * new)


def _text(choice: Any) -> str:
    delta = getattr(choice, "delta", None)
    text = choice.text if delta is None else delta.content
    return text or ""
