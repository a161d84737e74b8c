"""The driver against a small server of our own on the loopback interface."""

from __future__ import annotations

import asyncio
import contextlib
import json
from itertools import count

import pytest

from conformance.endpoint.driver import Driver
from conformance.endpoint.stall import StallWatch
from conformance.endpoint.trace import Ask


def chunk(ids=None, text="", finish=None, usage=None, choices=True):
    choice = {"index": 0, "text": text, "finish_reason": finish}
    if ids is not None:
        choice["token_ids"] = ids
    body = {
        "id": "cmpl-7",
        "object": "text_completion",
        "created": 0,
        "model": "m",
        "choices": [choice] if choices else [],
    }
    if usage is not None:
        body["usage"] = {"prompt_tokens": 3, "completion_tokens": usage, "total_tokens": 3 + usage}
    return body


class FakeServer:
    """Answers each POST with the scripted chunks; notes what it was asked and who hung up."""

    def __init__(self, *chunks, status=200, drop=False, hold=False, at_once=False):
        self.chunks, self.status, self.drop, self.hold = chunks, status, drop, hold
        self.at_once = at_once
        self.bodies, self.paths = [], []
        self.hung_up = asyncio.Event()

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        port = self.server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/v1"
        return self

    async def __aexit__(self, *_):
        self.server.close()

    async def serve(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            int(line.split(":")[1])
            for line in head.splitlines()
            if line.lower().startswith("content-length")
        )
        self.paths.append(head.split()[1])
        self.bodies.append(json.loads(await reader.readexactly(length)))
        with contextlib.suppress(ConnectionError):
            await self.answer(reader, writer)
        writer.close()

    async def answer(self, reader, writer):
        if self.status != 200:
            body = json.dumps({"error": {"message": "output_rate_user: no", "code": 1}})
            head = f"HTTP/1.1 {self.status} No\r\nContent-Type: application/json\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
        writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
        for one in self.chunks:
            writer.write(self.frame(f"data: {json.dumps(one)}\n\n"))
            if self.at_once:
                continue
            await writer.drain()
            # Let the client read each chunk on its own.
            await asyncio.sleep(0)
        if self.drop:
            return
        if self.hold:
            await reader.read()
            self.hung_up.set()
            return
        writer.write(self.frame("data: [DONE]\n\n") + b"0\r\n\r\n")

    @staticmethod
    def frame(text):
        return f"{len(text.encode()):x}\r\n{text}\r\n".encode()


def drive(server, ask, clock=None):
    async def main():
        async with (
            server,
            Driver(server.url, "m", clock=clock or count(1).__next__) as driver,
        ):
            stream = await driver.one(ask)
            if server.hold:
                await asyncio.wait_for(server.hung_up.wait(), 5)
            return stream

    return asyncio.run(main())


ASK = Ask("alice", "Hello", 5, name="s")


def test_tokens_are_counted_by_ids_not_by_chunks():
    server = FakeServer(
        chunk([11], "a", usage=1),
        chunk([12, 13, 14], "bcd", usage=4),
        chunk([], ""),
        chunk([15], "", finish="length", usage=5),
        chunk(usage=5, choices=False),
    )
    stream = drive(server, ASK)
    assert stream.token_ids == [11, 12, 13, 14, 15]
    assert len(stream.token_ns) == 5
    assert stream.token_ns[1] == stream.token_ns[2] == stream.token_ns[3]
    assert stream.token_ns[0] < stream.token_ns[1] < stream.token_ns[4]
    assert (stream.text, stream.finish_reason, stream.tokens_by) == ("abcd", "length", "ids")
    assert (stream.completion_tokens, stream.prompt_tokens) == (5, 3)
    assert stream.error is None
    assert not stream.cancelled


def test_without_ids_the_running_usage_counts():
    server = FakeServer(
        chunk(text="a", usage=1), chunk(text="b", usage=3), chunk(text="", finish="stop", usage=4)
    )
    stream = drive(server, ASK)
    assert (len(stream.token_ns), stream.tokens_by) == (4, "usage")
    assert stream.token_ids == []


def test_the_identity_and_the_counting_are_asked_for():
    server = FakeServer(chunk([1], finish="length", usage=1))
    drive(server, Ask("alice", "Hello", 5, extra={"stop": ["x"]}))
    body = server.bodies[0]
    assert body["vllm_xargs"] == {"output_rate_user": "alice"}
    assert body["return_token_ids"] is True
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert (body["prompt"], body["max_tokens"], body["temperature"]) == ("Hello", 5, 0.0)
    assert body["stop"] == ["x"]
    anonymous = FakeServer(chunk([1], finish="length", usage=1))
    drive(anonymous, Ask(None, "Hello", 5))
    assert "vllm_xargs" not in anonymous.bodies[0]


def test_chat_goes_through_its_own_endpoint():
    body = chunk([1], usage=1)
    body["object"] = "chat.completion.chunk"
    body["choices"][0]["delta"] = {"content": "hi"}
    server = FakeServer(body)
    stream = drive(server, Ask("alice", "Hello", 5, door="chat"))
    assert server.paths == ["/v1/chat/completions"]
    assert server.bodies[0]["messages"] == [{"role": "user", "content": "Hello"}]
    assert (stream.text, stream.token_ids) == ("hi", [1])


@pytest.mark.parametrize("status", [400, 429, 500, 503])
def test_a_refusal_is_the_streams_error_and_is_not_tried_again(status):
    server = FakeServer(status=status)
    stream = drive(server, ASK)
    assert f"HTTP {status}" in stream.error
    assert "output_rate_user: no" in stream.error
    assert len(server.bodies) == 1
    assert stream.ended_ns is not None


def test_an_answer_that_breaks_off_is_an_error_with_the_tokens_so_far():
    stream = drive(FakeServer(chunk([1], usage=1), drop=True), ASK)
    assert stream.error
    assert stream.token_ids == [1]


def test_nobody_at_the_address_is_an_error():
    async def main():
        async with Driver("http://127.0.0.1:1/v1", "m") as driver:
            return await driver.one(ASK)

    assert "APIConnectionError" in asyncio.run(main()).error


@pytest.mark.parametrize("after", [0, 1, 2])
def test_cancelling_hangs_up_after_that_many_tokens(after):
    server = FakeServer(chunk([1], usage=1), chunk([2], usage=2), hold=True)
    stream = drive(server, Ask("alice", "Hello", 50, cancel_after=after))
    assert stream.cancelled
    assert len(stream.token_ns) == after
    assert stream.error is None
    assert server.hung_up.is_set()


def test_cancelling_the_task_cancels_the_stream_alone():
    async def main():
        async with (
            FakeServer(chunk([1], usage=1), hold=True) as server,
            Driver(server.url, "m") as driver,
        ):
            stream, task = driver.start(ASK)
            while not stream.token_ns:
                await asyncio.sleep(0)
            task.cancel()
            await task
            await asyncio.wait_for(server.hung_up.wait(), 5)
            return stream

    stream = asyncio.run(main())
    assert stream.cancelled
    assert stream.error is None


def test_a_driver_that_was_not_opened_says_so():
    async def main():
        return await Driver("http://127.0.0.1:1/v1", "m").one(ASK)

    assert "async with" in asyncio.run(main()).error


def test_a_fast_stream_does_not_keep_the_loop_to_itself():
    count = 500
    server = FakeServer(*(chunk([i], usage=i + 1) for i in range(count)), at_once=True)
    turns = 0

    async def others(stream):
        nonlocal turns
        while not stream.token_ns:
            await asyncio.sleep(0)
        while len(stream.token_ns) < count:
            turns += 1
            await asyncio.sleep(0)

    async def main():
        async with server, Driver(server.url, "m") as driver:
            stream, task = driver.start(ASK)
            await asyncio.gather(task, others(stream))

    asyncio.run(main())
    assert turns >= count - 1


def test_the_largest_stall_is_kept():
    async def main():
        # Each look at the clock is 2 ms after the last, but for one that is 52 ms after.
        jumps = iter([0, 2, 4, 56, 58])
        last = 58
        seen = asyncio.Event()

        def clock():
            nonlocal last
            now = next(jumps, None)
            if now is None:
                seen.set()
                last += 2
                now = last
            return now * 1_000_000

        async with StallWatch(clock) as watch:
            await asyncio.wait_for(seen.wait(), 5)
        return watch.worst_ns

    assert asyncio.run(main()) == 50_000_000
