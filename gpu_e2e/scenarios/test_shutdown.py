"""A server that is told to end while users are throttled."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from conformance.endpoint.trace import Ask
from gpu_e2e.suite import tracebacks
from gpu_e2e.suite.live import Live, check
from gpu_e2e.suite.play import Client
from gpu_e2e.suite.users import limited

SHORT = {"ignore_eos": True}
ENDED = limited("server-ends", 2)
# vLLM's own shutdown takes a second or two; tenfold.
MOST_S = 20.0


@pytest.mark.last
def test_sigterm_while_throttled(live: Live) -> None:
    """It ends as it would without limits: soon, and no client is left hanging."""
    server = live.need_own_server("SIGTERM")

    logged: list[int] = []

    async def act(driver: Client) -> float:
        asks = [Ask(ENDED, f"the end {n}", 50, f"end-{n}", extra=SHORT) for n in range(6)]
        tasks = [driver.start(ask)[1] for ask in asks]
        await asyncio.sleep(1.0)
        started = time.monotonic()
        logged.append(server.log.stat().st_size)
        server.process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(asyncio.gather(*tasks), MOST_S)
        while server.alive() and time.monotonic() - started < MOST_S:
            await asyncio.sleep(0.05)
        return time.monotonic() - started

    played = live.play(act, settle=False)
    status = server.process.poll()
    whole = [s.label for s in played.streams if s.error is None and s.finish_reason == "length"]
    log = server.log.read_bytes()[logged[0] :].decode(errors="replace")
    traces = tracebacks.unexpected(log)
    clean = f"{len(traces)} tracebacks in its log since, but for vLLM's own at its end"
    live.judge(
        played,
        check("ended", status is not None, f"ended {played.result:.1f} s after SIGTERM ({status})"),
        check("status", status in (0, -signal.SIGTERM, 143), f"exit status {status}"),
        check("not-whole", not whole, f"{len(whole)} answers claim to be whole"),
        check("clean", not traces, "; ".join([clean, *dict.fromkeys(traces)])),
        books=False,
    )
