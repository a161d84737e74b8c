"""Real engines of the tiny model in one process, and a process of its own for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

from gpu_e2e.engine import depth2, model
from gpu_e2e.engine.launch import Mode
from gpu_e2e.engine.vllm_command import answer_for_cpu_build

ROOT = Path(__file__).resolve().parents[1]
MODES: tuple[Mode, ...] = ("sync", "async")
TIMEOUT_S = 900


def apart(module: str, mode: Mode, *arguments: str) -> Any:
    """What `python -m module --mode MODE` tells with `tell`, from a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", module, "--mode", mode, *arguments],
        cwd=ROOT,
        timeout=TIMEOUT_S,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def tell(found: Any) -> NoReturn:
    """Print it as JSON, and end: two engines in one process do not always end by themselves."""
    print(json.dumps(found), flush=True)
    os._exit(0)


def prepare(mode: Mode) -> None:
    """Before the first engine: one process, one thread of torch, our plugin."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    answer_for_cpu_build()
    if mode == "async":
        depth2.enable()
    from sched_adapter import plugin

    plugin.register()


def make_llm(mode: Mode, limits: dict[str, Any] | None) -> Any:
    """A `vllm.LLM` with these limits (`additional_config["output_rate"]`); None: stock's."""
    from vllm import LLM

    return LLM(
        str(model.cached()),
        max_model_len=512,
        max_num_seqs=256,
        enforce_eager=True,
        enable_prefix_caching=False,
        async_scheduling=mode == "async",
        distributed_executor_backend="uni",
        disable_log_stats=True,
        additional_config={} if limits is None else {"output_rate": limits},
    )
