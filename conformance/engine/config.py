"""A real VllmConfig and KVCacheConfig for a small text decoder, with nothing downloaded.

vLLM wants a Hugging Face config to look at; a folder with one `config.json` is written once a
process. No weights exist and none are read: the model is the scripted one.
"""

from __future__ import annotations

import atexit
import functools
import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from vllm.config import CacheConfig, LoRAConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.v1.core.kv_cache_utils import resolve_kv_cache_block_sizes
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.structured_output import StructuredOutputManager

from conformance.engine.grammar import ScriptedBackend
from conformance.engine.model import VOCAB

__all__ = ["build_scheduler", "make_kv_cache_config", "make_vllm_config"]

_DECODER = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "max_position_embeddings": 1 << 20,
    "tie_word_embeddings": True,
    "torch_dtype": "float16",
}


@functools.cache
def _model_folder() -> str:
    folder = tempfile.mkdtemp(prefix="scripted-decoder-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    Path(folder, "config.json").write_text(json.dumps(_DECODER))
    return folder


@functools.cache
def _model_config(max_model_len: int) -> ModelConfig:
    # Cached: 20 ms here, and 20 s on a machine where vLLM has not yet looked at the architecture.
    return ModelConfig(
        model=_model_folder(),
        skip_tokenizer_init=True,
        dtype="float16",
        seed=0,
        max_model_len=max_model_len,
        generation_config="vllm",
    )


@contextmanager
def _quiet() -> Iterator[None]:
    # A small block size is deliberate; vLLM's advice about it would come once an engine.
    logger = logging.getLogger("vllm.platforms.cpu")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


def make_vllm_config(
    *,
    max_num_seqs: int = 8,
    max_num_active_seqs: int | None = None,
    max_num_batched_tokens: int = 64,
    max_model_len: int = 512,
    block_size: int = 4,
    num_blocks: int = 256,
    policy: str = "fcfs",
    chunked_prefill: bool = True,
    prefix_caching: bool = True,
    async_scheduling: bool = False,
    long_prefill_token_threshold: int = 0,
    lora_slots: int = 0,
    scheduler_options: Mapping[str, Any] | None = None,
    additional_config: Mapping[str, Any] | None = None,
) -> VllmConfig:
    """The config of a small text decoder.

    `num_blocks` counts usable KV blocks of `block_size` tokens; the pool has one more, vLLM's null
    block. `lora_slots` is the number of adapters that may run in one step, 0 for no LoRA.
    `scheduler_options` are further fields of vLLM's SchedulerConfig.
    Without `chunked_prefill`, vLLM wants `max_num_batched_tokens` >= `max_model_len`; the latter is
    lowered to it. Raises what vLLM raises on a combination it refuses.
    """
    if not chunked_prefill:
        max_model_len = min(max_model_len, max_num_batched_tokens)
    with _quiet():
        config = VllmConfig(
            model_config=_model_config(max_model_len),
            cache_config=CacheConfig(block_size=block_size, enable_prefix_caching=prefix_caching),
            scheduler_config=SchedulerConfig(
                max_model_len=max_model_len,
                is_encoder_decoder=False,
                max_num_seqs=max_num_seqs,
                max_num_active_seqs=max_num_active_seqs,
                max_num_batched_tokens=max_num_batched_tokens,
                enable_chunked_prefill=chunked_prefill,
                policy=policy,
                long_prefill_token_threshold=long_prefill_token_threshold,
                **(scheduler_options or {}),
            ),
            lora_config=LoRAConfig(max_loras=lora_slots) if lora_slots else None,
            additional_config=dict(additional_config or {}),
        )
    # The CPU platform turns async scheduling off whatever one asks (platforms/cpu.py:331 in
    # 0.32.0); nothing below the scheduler runs here, so it is simply set afterwards.
    config.scheduler_config.async_scheduling = async_scheduling
    # Not what the user asked but what vLLM made of it, so that a silent change shows here.
    cache, scheduler = config.cache_config, config.scheduler_config
    made = (
        cache.block_size,
        cache.enable_prefix_caching,
        scheduler.max_num_seqs,
        scheduler.max_num_batched_tokens,
        scheduler.enable_chunked_prefill,
    )
    asked = (block_size, prefix_caching, max_num_seqs, max_num_batched_tokens, chunked_prefill)
    if made != asked:
        raise RuntimeError(f"vLLM changed the config: asked for {asked}, got {made}")
    cache.num_gpu_blocks = num_blocks + 1
    return config


def make_kv_cache_config(vllm_config: VllmConfig) -> KVCacheConfig:
    """One group of full attention with the block size and block count of `vllm_config`."""
    spec = FullAttentionSpec(
        block_size=vllm_config.cache_config.block_size,
        num_kv_heads=1,
        head_size=1,
        dtype=torch.float32,
    )
    return KVCacheConfig(
        num_blocks=vllm_config.cache_config.num_gpu_blocks,
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
    )


def build_scheduler(
    cls: Callable[..., Any],
    vllm_config: VllmConfig,
    clock: Callable[[], int] | None = None,
    *,
    log_stats: bool = False,
) -> Any:
    """Make a scheduler as vLLM's engine core does (v1/engine/core.py:155 in 0.32.0).

    `cls` is the class, or anything else called with the same keywords. Where the scheduler has an
    attribute `clock`, it gets `clock`. The manager of structured output is vLLM's own with a
    scripted backend (`conformance.engine.grammar`).
    """
    kv_cache_config = make_kv_cache_config(vllm_config)
    block_size, hash_block_size = resolve_kv_cache_block_sizes(kv_cache_config, vllm_config)
    manager = StructuredOutputManager(vllm_config)
    manager.backend = ScriptedBackend(vllm_config, tokenizer=None, vocab_size=VOCAB)
    scheduler = cls(
        vllm_config=vllm_config,
        kv_cache_config=kv_cache_config,
        structured_output_manager=manager,
        block_size=block_size,
        hash_block_size=hash_block_size,
        include_finished_set=False,
        log_stats=log_stats,
    )
    if clock is not None and hasattr(scheduler, "clock"):
        scheduler.clock = clock
    return scheduler
