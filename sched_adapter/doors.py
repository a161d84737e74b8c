"""Checks at the front end, before a request reaches the engine.

A bad identity and a beam search are the client's error: HTTP 400 over HTTP, ValueError offline.
Each door looks at the limits of its own engine, so an engine without limits behaves as stock.
Places are vLLM 0.32.0's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from vllm.entrypoints.generate.beam_search.offline import BeamSearchOfflineMixin
from vllm.entrypoints.generate.beam_search.online import BeamSearchOnlineMixin
from vllm.entrypoints.openai.responses.serving import OpenAIServingResponses
from vllm.exceptions import VLLMValidationError
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.input_processor import InputProcessor

from sched_adapter import identity
from sched_adapter.config import limited

FIELD: Final = f"vllm_xargs.{identity.FIELD}"
"""The identity's place in an HTTP body, as an error names it."""


class RequestRefused(VLLMValidationError, ValueError):
    """A request that an engine with limits does not take.

    HTTP 400 by its first base; a ValueError offline, which vLLM's own class is not.

    Args:
        message: the fault and the mend, in one line.
        parameter: the field of the request that is at fault.
    """

    def __init__(self, message: str, parameter: str) -> None:
        VLLMValidationError.__init__(self, message, parameter=parameter)


def install() -> None:
    """Put the checks into vLLM's front-end classes; idempotent.

    Raises:
        AttributeError: this vLLM lacks a place; nothing was changed.
    """
    places: tuple[tuple[Any, str, Callable[..., None]], ...] = (
        (InputProcessor, "_validate_params", _check_params),
        (AsyncLLM, "generate", _check_generate),
        (OpenAIServingResponses, "_generate_with_builtin_tools", _check_responses),
        (BeamSearchOnlineMixin, "beam_search", _refuse_online_beams),
        (BeamSearchOfflineMixin, "beam_search", _refuse_offline_beams),
    )
    stock_methods = [getattr(owner, name) for owner, name, _ in places]
    for (owner, name, check), stock in zip(places, stock_methods, strict=True):
        if not hasattr(stock, "_output_rate"):
            setattr(owner, name, _checked(stock, check))


def _checked(stock: Callable[..., Any], check: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        check(self, *args, **kwargs)
        return stock(self, *args, **kwargs)

    method._output_rate = True  # type: ignore[attr-defined]
    return method


def _check_params(processor: Any, params: Any, *_: Any, **__: Any) -> None:
    """Before `InputProcessor._validate_params`: every way in, offline too, comes past here."""
    if limited(processor.vllm_config):
        _check_identity(params)


def _check_generate(
    engine: Any, prompt: Any, sampling_params: Any = None, *_: Any, **__: Any
) -> None:
    """Before `AsyncLLM.generate`, which is an async generator.

    It reaches `_validate_params` only when its first item is asked for. A streamed response has
    sent its status 200 by then; here the handler can still answer 400.
    """
    if limited(engine.vllm_config):
        _check_identity(sampling_params)


def _check_responses(
    serving: Any,
    request_id: Any = None,
    engine_input: Any = None,
    sampling_params: Any = None,
    *_: Any,
    **__: Any,
) -> None:
    """Before `OpenAIServingResponses._generate_with_builtin_tools`, a generator around that one."""
    if limited(serving.engine_client.vllm_config):
        _check_identity(sampling_params)


def _check_identity(params: Any) -> None:
    extra = getattr(params, "extra_args", None)
    if not isinstance(extra, dict) or identity.FIELD not in extra:
        return
    try:
        identity.check(extra[identity.FIELD])
    except ValueError as error:
        raise RequestRefused(f"{FIELD}: {error}", FIELD) from None


def _refuse_online_beams(serving: Any, *_: Any, **__: Any) -> None:
    """Before `BeamSearchOnlineMixin.beam_search`, whose sub-requests lose the identity."""
    _refuse_beams(serving.engine_client.vllm_config)


def _refuse_offline_beams(llm: Any, *_: Any, **__: Any) -> None:
    """Before `LLM.beam_search`, likewise."""
    _refuse_beams(llm.llm_engine.vllm_config)


def _refuse_beams(vllm_config: Any) -> None:
    if limited(vllm_config):
        raise RequestRefused(
            "use_beam_search: beam search is refused on an engine with output rate limits, since "
            "its candidates are not one charged token a step: use n or best-of sampling instead",
            "use_beam_search",
        )
