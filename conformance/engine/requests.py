"""Make vLLM's own Request objects, as its front end and engine core would."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.request import Request

from conformance.engine.grammar import ScriptedGrammar
from conformance.engine.model import EOS

__all__ = ["USER_KEY", "RequestFactory"]

USER_KEY = "output_rate_user"


class RequestFactory:
    """Makes requests for one engine. Arrival times count 0, 1, 2 …: no two are equal."""

    def __init__(self, vllm_config: Any) -> None:
        self._arrivals = itertools.count()
        self._hasher: Callable[[Request], list[Any]] | None = None
        cache = vllm_config.cache_config
        if cache.enable_prefix_caching:
            hash_fn = get_hash_fn_by_name(cache.prefix_caching_hash_algo)
            init_none_hash(hash_fn)
            self._hasher = get_request_block_hasher(cache.block_size, hash_fn)

    def make(
        self,
        request_id: str,
        *,
        user: Any,
        prompt: Sequence[int],
        max_tokens: int,
        priority: int = 0,
        stop_token_ids: Sequence[int] = (),
        ignore_eos: bool = False,
        min_tokens: int = 0,
        seed: int | None = None,
        grammar: int | Future[Any] | None = None,
        lora: int = 0,
        cache_salt: str | None = None,
        resumable: bool = False,
        extra_args: Mapping[str, Any] | None = None,
    ) -> Request:
        """One request. `user` None sends no identity; `lora` numbers an adapter, 0 is none."""
        extra = dict(extra_args or {})
        if user is not None:
            extra[USER_KEY] = user
        params = SamplingParams(
            temperature=0.0,
            max_tokens=max_tokens,
            min_tokens=min_tokens,
            stop_token_ids=list(stop_token_ids),
            ignore_eos=ignore_eos,
            seed=seed,
            extra_args=extra or None,
        )
        if grammar is not None:
            params.structured_outputs = StructuredOutputsParams(regex="scripted")
        params.update_from_generation_config({}, EOS)
        request = Request(
            request_id=request_id,
            prompt_token_ids=list(prompt),
            sampling_params=params,
            pooling_params=None,
            arrival_time=float(next(self._arrivals)),
            lora_request=LoRARequest(f"adapter-{lora}", lora, "none") if lora else None,
            cache_salt=cache_salt,
            priority=priority,
            block_hasher=self._hasher,
            resumable=resumable,
        )
        if grammar is not None:
            ready = ScriptedGrammar(grammar) if isinstance(grammar, int) else grammar
            request.structured_output_request.grammar = ready
        return request
