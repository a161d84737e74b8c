"""Another program beside a play."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Mapping


async def run_program(*command: str, env: Mapping[str, str], timeout_s: float) -> tuple[int, str]:
    """Exit status and output of a program.

    After `timeout_s` it is killed with all that it started, and its output says so.
    """
    with tempfile.TemporaryFile() as sink:
        process = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, **env}, stdout=sink, stderr=sink, start_new_session=True
        )
        late = ""
        try:
            await asyncio.wait_for(process.wait(), timeout_s)
        except TimeoutError:
            late = f"\nstill running after {timeout_s:.0f} s"
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        sink.seek(0)
        return process.returncode or 0, sink.read().decode(errors="replace") + late
