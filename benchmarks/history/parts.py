"""The figures of a release, in parts that can be measured one by one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROCESSES = 5
IDLE_TIMEOUT_S = 600

Figures = dict[str, Any]


def counts() -> Figures:
    """Instructions of a step and of the verbs."""
    from benchmarks.counted.__main__ import measured

    return {"steps": measured("steps"), "verbs": measured("verbs")}


def verbs() -> Figures:
    """ns of thread CPU of a take, and GCRA's over the floor's and the peers'."""
    from benchmarks.ratios.__main__ import best_ratio, measured
    from benchmarks.ratios.peers import PEERS

    runs = [measured("verbs") for _ in range(PROCESSES)]
    least = {
        kind: {name: round(min(run[kind][name] for run in runs), 1) for name in times}
        for kind, times in runs[0].items()
    }
    floor = {
        kind: round(best_ratio(runs, kind, "gcra", "floor"), 3) for kind in least if kind != "peers"
    }
    peers = {peer: round(1 / best_ratio(runs, "peers", "gcra", peer), 1) for peer in PEERS}
    return {"ns": least, "over the floor": floor, "peers over gcra": peers}


def memory() -> Figures:
    """Bytes of a limiter's state by user, the names not counted."""
    from benchmarks.ratios.memory import SIZES, bytes_per_user

    return {
        backend: {str(n): round(bytes_per_user(backend, n), 1) for n in SIZES}
        for backend in ("gcra", "token_bucket", "rolling_window")
    }


def cpu() -> Figures:
    """ns of thread CPU of a schedule()."""
    from benchmarks.ratios.__main__ import best_ratio, measured

    runs = [measured("steps") for _ in range(2)]
    return {
        "ns": {kind: {n: min(r[kind][n] for r in runs) for n in runs[0][kind]} for kind in runs[0]},
        "residents": round(best_ratio(runs, "residents", "10240", "1024"), 3),
        "waiting": round(best_ratio(runs, "waiting", "10000", "10"), 3),
    }


def pacing() -> Figures:
    """Achieved over configured rates in 60 simulated seconds, by backend, steps and rate."""
    from benchmarks.pacing.run import BACKENDS, STEPS, run

    return {
        backend.title: {
            steps: {
                rate: {"achieved": round(pace.achieved, 5), "most": round(pace.most, 5)}
                for rate, pace in run(backend, steps).items()
            }
            for steps in STEPS
        }
        for backend in BACKENDS
        if backend.reaches
    }


def throughput() -> Figures:
    """The real engine, adapter over stock, limits not reached."""
    from benchmarks.in_process import MODES
    from benchmarks.throughput.__main__ import measured

    return {
        mode: {tokens: found.to_json() for tokens, found in measured(mode).items()}
        for mode in MODES
    }


def isolation() -> Figures:
    """An interactive user on the real engine, beside others over alone."""
    from benchmarks.in_process import MODES
    from benchmarks.isolation.__main__ import measured

    return {
        mode: {name: found.to_json() for name, found in measured(mode).items()} for mode in MODES
    }


_IDLE = re.compile(
    r"^(?P<mode>sync|async): engine (?P<engine>[\d.]+)%, worker (?P<worker>[\d.]+)% of a core "
    r"\(with nobody there (?P<engine_empty>[\d.]+)% and (?P<worker_empty>[\d.]+)%\); "
    r"(?P<loops>\d+) loops/s.*to dispatched (?P<dispatched>[\d.]+) ms",
    re.MULTILINE,
)


def idle() -> Figures:
    """The real server with everybody out of quota, as its own test sees it."""
    command = [sys.executable, "-m", "pytest", "-q", "-s", "gpu_e2e/test_idle.py"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        timeout=IDLE_TIMEOUT_S,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    return idle_figures(done.stdout)


def idle_figures(printed: str) -> Figures:
    """What the test printed. ValueError if it is not what it used to print."""
    found = {
        match["mode"]: {
            "engine": float(match["engine"]) / 100,
            "worker": float(match["worker"]) / 100,
            "engine, empty": float(match["engine_empty"]) / 100,
            "worker, empty": float(match["worker_empty"]) / 100,
            "loops per s": int(match["loops"]),
            "new request dispatched, ms": float(match["dispatched"]),
        }
        for match in _IDLE.finditer(printed)
    }
    if found.keys() != {"sync", "async"}:
        raise ValueError(f"gpu_e2e/test_idle.py did not print its figures: {printed[-500:]}")
    return found


PARTS: dict[str, Callable[[], Figures]] = {
    "counts": counts,
    "verbs": verbs,
    "memory": memory,
    "cpu": cpu,
    "pacing": pacing,
    "throughput": throughput,
    "isolation": isolation,
    "idle": idle,
}
