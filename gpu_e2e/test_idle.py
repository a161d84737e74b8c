"""Everybody out of quota, on a real engine: it sleeps, and wakes for whoever may run.

Run by `tox -e demo` on the CPU build of vLLM, sync and async at depth 2.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import psutil
import pytest

from conformance.endpoint.driver import Driver
from conformance.endpoint.trace import Ask
from gpu_e2e.engine import model
from gpu_e2e.engine.launch import Engine, Mode, Server
from sched_adapter import record

# Two tokens each, then one in 20 s: throttled for as long as this test looks.
RATES = '{"slow-0":0.05,"slow-1":0.05}'
STREAMS = 4  # of each user
SETTLE_S = 2.0
WATCH_S = 10.0

EMPTY_S = 5.0

# Of one core. The worker of vLLM's CPU build takes some 2 % by itself, with nobody there, in
# threads of its communication library; so it is judged by what it takes beyond that.
ENGINE_LIMIT = 0.02
WORKER_LIMIT = 0.01
LOOPS_LIMIT = 25  # a second
# What a new request may take to its first token, in seconds; tenfold the few ms it is, and more.
ANSWER_LIMIT_S = 1.0


def part_of(server: Server, name: str) -> psutil.Process:
    for child in psutil.Process(server.process.pid).children(recursive=True):
        if name in " ".join(child.cmdline()):
            return child
    raise AssertionError(f"the server has no process called {name}")


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


async def cpu_for(seconds: float, *processes: psutil.Process) -> list[float]:
    """What each takes of a core for so many seconds."""
    before, start = [cpu_s(each) for each in processes], time.monotonic()
    await asyncio.sleep(seconds)
    took = time.monotonic() - start
    return [(cpu_s(each) - was) / took for each, was in zip(processes, before, strict=True)]


async def watch(server: Server) -> dict[str, float]:
    """Throttle two users, look at the idle engine for a while, then ask as somebody else."""
    engine, worker = part_of(server, "EngineCore"), part_of(server, "Worker")
    async with Driver(server.base_url, "tiny") as driver:
        await driver.one(Ask("free", "warm up", max_tokens=4))
        await asyncio.sleep(SETTLE_S)
        empty = await cpu_for(EMPTY_S, engine, worker)
        asks = [
            Ask(f"slow-{n % 2}", f"Say {n}", max_tokens=50, extra={"ignore_eos": True})
            for n in range(2 * STREAMS)
        ]
        tasks = [driver.start(ask)[1] for ask in asks]
        await asyncio.sleep(SETTLE_S)
        start_ns = time.monotonic_ns()
        throttled = await cpu_for(WATCH_S, engine, worker)
        end_ns = time.monotonic_ns()
        sent_ns = driver.clock()
        answer = await driver.one(Ask("free", "anybody there?", max_tokens=1))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return {
        "engine": throttled[0],
        "worker": throttled[1],
        "engine, empty": empty[0],
        "worker, empty": empty[1],
        "start_ns": start_ns,
        "end_ns": end_ns,
        "seconds": (end_ns - start_ns) / 1e9,
        "sent_ns": sent_ns,
        "answered_s": (answer.token_ns[0] - sent_ns) / 1e9,
    }


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_engine_whose_users_are_out_of_quota_sleeps(mode: Mode, tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    flags = ["--user-output-tokens-per-second", RATES, "--output-rate-record", str(path)]
    flags += ["--max-model-len", "1024"]
    with Server.start(
        model.cached(), log=tmp_path / "server.log", engine=Engine("cpu", mode), flags=flags
    ) as server:
        seen = asyncio.run(watch(server))
    events = [e for e in record.read(path) if seen["start_ns"] <= e["ns"] <= seen["end_ns"]]
    waits = [e for e in events if e["e"] == "wait"]
    dispatched = [e for e in events if e["e"] == "dispatch"]
    slept = sum(e["end_ns"] - e["ns"] for e in waits) / 1e9
    first = next(
        e["ns"]
        for e in record.read(path)
        if e["e"] == "dispatch" and e["user"] == "free" and e["ns"] > seen["sent_ns"]
    )
    print(
        f"\n{mode}: engine {seen['engine']:.1%}, worker {seen['worker']:.1%} of a core "
        f"(with nobody there {seen['engine, empty']:.1%} and {seen['worker, empty']:.1%}); "
        f"{len(waits) / seen['seconds']:.0f} loops/s, {slept / seen['seconds']:.0%} asleep; "
        f"a new request: sent to dispatched {(first - seen['sent_ns']) / 1e6:.1f} ms, "
        f"to its first token {seen['answered_s'] * 1e3:.1f} ms"
    )
    assert not dispatched, "not idle: somebody had quota, so this measured nothing"
    assert seen["engine"] < ENGINE_LIMIT
    assert seen["worker"] < seen["worker, empty"] + WORKER_LIMIT
    assert 0 < len(waits) <= LOOPS_LIMIT * seen["seconds"]
    assert slept > 0.8 * seen["seconds"], "the loops that are not waits are not in the record"
    assert seen["answered_s"] < ANSWER_LIMIT_S
