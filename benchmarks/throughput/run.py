"""Two real engines in one process, vLLM's and ours, that take turns with the same work."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from gpu_e2e.engine import depth2, model
from gpu_e2e.engine.vllm_command import answer_for_cpu_build

Mode = Literal["sync", "async"]

NOT_REACHED = 10**6
USERS = 16


@dataclass(frozen=True)
class Work:
    requests: int = 64
    tokens: int = 16
    """Of each request's output."""


@dataclass(frozen=True)
class Spent:
    """What a piece of work took, in seconds of the wall clock and of CPU (of all threads)."""

    wall_s: float
    cpu_s: float
    tokens: int


def engines(mode: Mode) -> dict[str, Any]:
    """Both engines of this mode, by name. They live in this process, worker and all."""
    # In one process, so that both see the same machine at the same time; one thread of torch.
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
    limits = {"output_rate": {"default_rate": NOT_REACHED}}
    return {"stock": _engine(mode, {}), "adapter": _engine(mode, limits)}


def _engine(mode: Mode, limits: dict[str, Any]) -> Any:
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
        additional_config=limits,
    )


def spend(engine: Any, work: Work) -> Spent:
    """Have the engine do the work once."""
    from vllm import SamplingParams

    params = [
        SamplingParams(
            max_tokens=work.tokens,
            ignore_eos=True,
            temperature=0.0,
            extra_args={"output_rate_user": f"user-{n % USERS}"},
        )
        for n in range(work.requests)
    ]
    prompts = [f"Say {n}" for n in range(work.requests)]
    wall, cpu = time.monotonic(), time.process_time()
    outputs = engine.generate(prompts, params, use_tqdm=False)
    return Spent(
        time.monotonic() - wall,
        time.process_time() - cpu,
        sum(len(output.outputs[0].token_ids) for output in outputs),
    )


def pairs(both: dict[str, Any], work: Work, count: int) -> Iterator[tuple[Spent, Spent]]:
    """So many pairs (stock, adapter), one after the other, each time another one first."""
    for name in both:
        spend(both[name], work)  # the first run warms up
    for n in range(count):
        order = list(both) if n % 2 else list(reversed(both))
        spent = {name: spend(both[name], work) for name in order}
        yield spent["stock"], spent["adapter"]
