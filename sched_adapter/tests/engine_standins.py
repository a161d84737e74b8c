"""Stand-ins around the real engine loop: a scripted worker, a throttling scheduler, slow grammars.

The scheduler is stock's but for denying requests whose id begins with "slow" their decode steps
until `ready_ns`; then `grants` of them pass.
"""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.executor import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput

STEP_S = 0.002
NEVER_NS = 1 << 62

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "num_hidden_layers": 1,
    "vocab_size": 256,
    "max_position_embeddings": 1024,
    "torch_dtype": "bfloat16",
}


class ScriptedExecutor(Executor):
    """One worker thread that takes STEP_S for a batch and samples token 5 for everybody."""

    step_s = STEP_S

    def _init_executor(self) -> None:
        self.seen: list[Any] = []
        self.seen_ns: list[int] = []
        self._worker = ThreadPoolExecutor(1)
        self._prompts: dict[str, int] = {}

    def get_kv_cache_specs(self) -> list[Any]:
        spec = FullAttentionSpec(block_size=16, num_kv_heads=4, head_size=16, dtype=torch.bfloat16)
        return [{"layer": spec}]

    def get_supported_kv_cache_layouts(self) -> list[list[str]]:
        return [["LBNHC"]]

    def determine_available_memory(self) -> list[int]:
        return [16 << 20]

    def collective_rpc(self, *args: Any, **kwargs: Any) -> list[Any]:
        return []

    def check_health(self) -> None: ...

    def shutdown(self) -> None:
        self._worker.shutdown()

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        assert non_block
        self.seen_ns.append(time.monotonic_ns())
        self.seen.append(scheduler_output)
        self._batch = scheduler_output
        if scheduler_output.total_num_scheduled_tokens:
            future: Future[Any] = Future()
            future.set_result(None)  # as a worker does that wants `sample_tokens` next
            return future
        return self._worker.submit(lambda: EMPTY_MODEL_RUNNER_OUTPUT)

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        future = self._worker.submit(self._sample, self._batch)
        return future if non_block else future.result()

    def _sample(self, batch: Any) -> ModelRunnerOutput:
        time.sleep(self.step_s)
        left = {}  # tokens still to compute before a request samples
        for new in batch.scheduled_new_reqs:
            self._prompts[new.req_id] = new.prompt_len
            left[new.req_id] = new.prompt_len - new.num_computed_tokens
        old = batch.scheduled_cached_reqs
        for req_id, computed, outputs in zip(
            old.req_ids, old.num_computed_tokens, old.num_output_tokens, strict=True
        ):
            left[req_id] = self._prompts[req_id] + outputs - computed
        ids = list(batch.num_scheduled_tokens)
        tokens = [[5] if batch.num_scheduled_tokens[i] >= left[i] else [] for i in ids]
        return ModelRunnerOutput(ids, {i: n for n, i in enumerate(ids)}, sampled_token_ids=tokens)


class Throttling:
    """The part of our scheduler that the engine sees, over stock's running loop."""

    ready_ns = NEVER_NS
    grants = 1
    loops = 0
    denied = ran = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.waits: list[tuple[int, int, str]] = []
        self.outputs: list[Any] = []

    def _reserve_prefill_lookahead(self, request: Any, num_computed: int, num_new: int) -> int:
        num_new = super()._reserve_prefill_lookahead(request, num_computed, num_new)  # type: ignore[misc]
        decodes = num_computed >= request.num_prompt_tokens
        if num_new and decodes and request.request_id.startswith("slow"):
            if time.monotonic_ns() < self.ready_ns:
                self.denied = True
                return 0
            self.grants -= 1
            if self.grants == 0:
                self.ready_ns = NEVER_NS
        return num_new

    def schedule(self, *args: Any) -> Any:
        self.loops += 1
        self.denied = False
        output = super().schedule(*args)  # type: ignore[misc]
        self.ran = output.total_num_scheduled_tokens > 0
        self.outputs.append(output)
        return output

    def output_rate_wait_s(self) -> float:
        if self.ran or not self.denied:
            return 0.0
        return min(0.05, max(0, self.ready_ns - time.monotonic_ns()) / 1e9)

    def note_wait(self, start_ns: int, end_ns: int, woke: str) -> None:
        self.waits.append((start_ns, end_ns, woke))


class ThrottledScheduler(Throttling, Scheduler): ...


class ThrottledAsyncScheduler(Throttling, AsyncScheduler): ...


def make_config(folder: Path, *, asynchronous: bool, scheduler_cls: Any = None, **args: Any) -> Any:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    args = {"max_num_seqs": 8, "max_model_len": 512, "max_num_batched_tokens": 512, **args}
    config = EngineArgs(model=str(folder), skip_tokenizer_init=True, **args).create_engine_config()
    config.scheduler_config.async_scheduling = asynchronous  # the CPU platform turns it off
    ours = ThrottledAsyncScheduler if asynchronous else ThrottledScheduler
    config.scheduler_config.scheduler_cls = scheduler_cls or ours
    return config


def make_request(
    req_id: str, max_tokens: int = 100, grammar: str | None = None, user: str | None = None
) -> Any:
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    if user is not None:
        params.extra_args = {"output_rate_user": user}
    if grammar is not None:
        params.structured_outputs = StructuredOutputsParams(regex=grammar)
    return EngineCoreRequest(req_id, [1, 2, 3, 4], None, params, None, 0.0, None, None, None)


class GatedBackend:
    """Structured output whose compilation lasts until the test opens the gate."""

    def __init__(self, error: type[Exception] | None = None) -> None:
        self.gate = threading.Event()
        self.error = error
        self.compiled_ns = 0

    def compile_grammar(self, *args: Any, **kwargs: Any) -> Any:
        assert self.gate.wait(10)
        if self.error is not None:
            raise self.error("planted")
        self.compiled_ns = time.monotonic_ns()
        return SimpleNamespace(
            accept_tokens=lambda *_: True, is_terminated=lambda: False, fill_bitmask=lambda *_: None
        )

    def allocate_token_bitmask(self, rows: int) -> Any:
        return torch.zeros((rows, 8), dtype=torch.int32)

    def destroy(self) -> None: ...
