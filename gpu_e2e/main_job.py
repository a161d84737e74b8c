"""The main job on a real engine, and a verdict: three users with three limits, over HTTP.

    python -m gpu_e2e.main_job [--mode both] [--limiter gcra] [--device cpu] [--model FOLDER]

`demo.py` runs this in an environment that it sets up itself. Exit status: 0 all semantics hold,
1 one is broken, 2 it could not be judged (no server, no record).
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.endpoint.driver import Driver
from conformance.endpoint.record import EngineRecord
from gpu_e2e.engine import model
from gpu_e2e.engine.launch import Device, Engine, Mode, Server, ServerFailed
from gpu_e2e.screen import Screen
from gpu_e2e.semantics import judge_all
from gpu_e2e.workload import ALICE_STREAMS, Run, drive, limits_flag

REPORTS = Path(__file__).resolve().parent.parent / "reports" / "main-job"
SERVED_NAME = "tiny"
MODES: dict[str, tuple[Mode, ...]] = {
    "both": ("sync", "async"),
    "sync": ("sync",),
    "async": ("async",),
}


@dataclass(frozen=True, slots=True)
class Job:
    """What to run: engines, backend, model (None: the project's own)."""

    modes: tuple[Mode, ...]
    limiter: str
    device: Device
    model: str | None
    reports: Path
    alice_streams: int


def run_all(job: Job, screen: Screen) -> bool:
    """Run every mode; whether all semantics held in all of them.

    Raises ServerFailed, OSError or ValueError where there is nothing to judge.
    """
    started = time.monotonic()
    path = job.model or str(model.cached())
    if job.model is None:
        screen.say(f"model: {path}")
    held = [_run_mode(job, mode, path, screen) for mode in job.modes]
    broken = sum(not ok for ok in held)
    verdict = "all five semantics hold" if not broken else f"broken in {broken} of {len(held)} runs"
    screen.say(f"{verdict} ({time.monotonic() - started:.0f} s in all); records: {job.reports}")
    return not broken


def _run_mode(job: Job, mode: Mode, path: str, screen: Screen) -> bool:
    folder = job.reports / f"{job.limiter.replace(':', '.')}-{mode}-{job.alice_streams}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    record_path = folder / "record.jsonl"
    flags = [*limits_flag(), "--output-rate-limiter", job.limiter]
    flags += ["--output-rate-record", str(record_path), "--max-model-len", "4096"]
    screen.say(f"vllm serve {' '.join(flags)}  ({job.device}, {mode}; starting)")
    started = time.monotonic()
    engine = Engine(job.device, mode)
    with Server.start(
        path, log=folder / "server.log", engine=engine, flags=flags, served_name=SERVED_NAME
    ) as server:
        screen.say(f"ready after {time.monotonic() - started:.0f} s at {server.base_url}")
        run = asyncio.run(_drive(server.base_url, screen, job))
    record = EngineRecord.load(record_path)
    same_tokens = job.device == "cpu"
    result = judge_all(record, run, mode, same_tokens=same_tokens)
    screen.report(f"{job.limiter}, {mode}", record, run, result)
    return all(semantic.ok for semantic in result)


async def _drive(base_url: str, screen: Screen, job: Job) -> Run:
    run = Run(job.alice_streams)
    async with Driver(base_url, SERVED_NAME) as driver, screen.watching(run):
        await drive(driver, run, screen.phase, counts_itself=job.model is None)
    return run


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit status is said in the module's docstring."""
    parser = argparse.ArgumentParser(description="Three users, three limits, one real engine.")
    parser.add_argument(
        "--mode", choices=MODES, default="both", help="default: one after the other"
    )
    parser.add_argument("--limiter", default="gcra", metavar="NAME")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--model", metavar="NAME", help="default: the project's own tiny model")
    parser.add_argument(
        "--streams",
        type=int,
        choices=(1, 2, 4),
        default=ALICE_STREAMS,
        help="of the user at 20 tok/s, default %(default)s",
    )
    parser.add_argument("--reports", type=Path, default=REPORTS, metavar="FOLDER")
    given = parser.parse_args(arguments)
    job = Job(
        MODES[given.mode],
        given.limiter,
        given.device,
        given.model,
        given.reports,
        given.streams,
    )
    try:
        return 0 if run_all(job, Screen()) else 1
    except (ServerFailed, OSError, ValueError) as error:
        print(f"main job: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("main job: interrupted; the server is stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
