"""An engine process of its own, as vLLM starts one: what it costs while it waits, how it ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import psutil

from sched_adapter.tests.engine_rig import FrontEnd, run_engine_process


def test_an_idle_engine_costs_nothing_and_sigterm_ends_its_wait(tmp_path: Path) -> None:
    front = FrontEnd(tmp_path)
    process = multiprocessing.get_context("spawn").Process(
        target=run_engine_process, args=(tmp_path, True)
    )
    process.start()
    try:
        front.greet()
        for i in range(8):
            front.add(f"slow{i}")
        started: set[str] = set()
        while len(started) < 8:
            started |= {output.request_id for output in front.receive().outputs}
        time.sleep(0.5)
        cpu = psutil.Process(process.pid).cpu_percent
        cpu()
        time.sleep(3)
        percent = cpu()
        print(f"engine process with 8 residents, all throttled: {percent:.1f} % CPU")
        assert percent < 5

        os.kill(process.pid or 0, signal.SIGTERM)
        sent_ns = time.monotonic_ns()
        aborted: set[str] = set()
        while len(aborted) < 8:
            aborted |= {output.request_id for output in front.receive().outputs}
        took_ms = (time.monotonic_ns() - sent_ns) / 1e6
        print(f"SIGTERM, to the last stream's end at the front end: {took_ms:.1f} ms")
        assert took_ms < 500
        process.join(30)
        assert process.exitcode == 0
    finally:
        process.kill()
        front.disconnect()
