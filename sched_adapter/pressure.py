"""KV pressure: blocks that throttled residents give up for somebody with quota.

Leans on ``KVCacheManager.allocate_slots`` of vLLM 0.32.0: the need is worked out
here in the same way, so that never more is preempted than it takes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.request import Request, RequestStatus

from sched_adapter.victims import Holder

_SIGNATURE = inspect.signature(KVCacheManager.allocate_slots)


def blocks_missing(
    manager: KVCacheManager, request: Request, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> int:
    """How many more free blocks ``allocate_slots(request, *args, **kwargs)`` would have needed."""
    call = _SIGNATURE.bind(manager, request, *args, **kwargs)
    call.apply_defaults()
    asked = call.arguments
    adopted = asked["new_computed_blocks"] or manager.empty_kv_cache_blocks
    local = request.num_computed_tokens + asked["num_new_computed_tokens"]
    total = min(local + asked["num_external_computed_tokens"], manager.max_model_len)
    end = total + asked["num_new_tokens"]

    def needed(num_tokens: int, main_model: int, whole: bool) -> int:
        blocks: int = manager.coordinator.get_num_blocks_to_allocate(
            request_id=request.request_id,
            num_tokens=num_tokens,
            new_computed_blocks=adopted.blocks,
            num_encoder_tokens=asked["num_encoder_tokens"],
            total_computed_tokens=total,
            num_local_computed_tokens=local,
            num_tokens_main_model=main_model,
            apply_admission_cap=whole,
            prefill_end=max(request.num_prompt_tokens, request.num_tokens - 1),
        )
        return blocks

    need = needed(min(end + asked["num_lookahead_tokens"], manager.max_model_len), end, whole=False)
    need += asked["reserved_blocks"]
    if asked["full_sequence_must_fit"]:
        full = min(request.num_tokens, manager.max_model_len)
        need = max(need, needed(full, full, whole=True))
    waiting = request.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED)
    if waiting and asked["has_scheduled_reqs"]:
        need += manager.watermark_blocks
    return need - int(manager.block_pool.get_num_free_blocks())


def holders(
    manager: KVCacheManager, requests: Iterable[Request], kwargs: dict[str, Any]
) -> list[Holder[Request]]:
    """What each would free, not counting blocks that are shared or about to be adopted."""
    adopted = kwargs.get("new_computed_blocks")
    kept = {id(block) for group in adopted.blocks for block in group} if adopted else set()
    return [
        Holder(request, _frees(manager, request, kept), request.num_computed_tokens)
        for request in requests
    ]


def _frees(manager: KVCacheManager, request: Request, kept: set[int]) -> int:
    blocks = manager.get_blocks(request.request_id).blocks
    return sum(
        block.ref_cnt == 1 and not block.is_null and id(block) not in kept
        for group in blocks
        for block in group
    )


#: What stands in for ``allocate_slots`` during a step.
Allocate = Callable[..., Any]
