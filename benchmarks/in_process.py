"""Real engines of the tiny model in this process, worker and all."""

from __future__ import annotations

import os
from typing import Any, Literal

from gpu_e2e.engine import depth2, model
from gpu_e2e.engine.vllm_command import answer_for_cpu_build

Mode = Literal["sync", "async"]
MODES: tuple[Mode, ...] = ("sync", "async")


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
