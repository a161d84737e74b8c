"""What a request must give back, computed without any engine."""

from __future__ import annotations

from conformance.engine.grammar import allowed_tokens
from conformance.engine.model import EOS, ScriptedModel
from conformance.engine.observe import RequestLog

__all__ = ["expected_output"]


def expected_output(model: ScriptedModel, request: RequestLog, max_model_len: int) -> list[int]:
    """The output of an unlimited, undisturbed run of this request; a session's turns in a row."""
    if request.grammar is not None:
        return _structured(model, request, max_model_len)
    out = model.completion(
        request.prompt,
        request.max_tokens,
        script=request.script,
        stops=request.stops,
        sampling_seed=request.sampling_seed,
        max_model_len=max_model_len,
    )
    prompt, turn = request.prompt, out
    for tokens, max_tokens in request.inputs:
        # A turn's last token was sampled and never computed: vLLM drops it from the context.
        prompt = [*prompt, *turn[:-1], *tokens]
        turn = model.completion(
            prompt, max_tokens, script=request.script, max_model_len=max_model_len
        )
        out = out + turn
    return out


def _structured(model: ScriptedModel, request: RequestLog, max_model_len: int) -> list[int]:
    assert request.grammar is not None
    key = model.key(request.prompt, request.sampling_seed)
    out: list[int] = []
    position = len(request.prompt)
    while True:
        last = out[-1] if out else 0
        allowed = allowed_tokens(last, len(out), request.grammar)
        token = request.script.get(position, model.token(key, position))
        out.append(allowed[token % len(allowed)])
        position += 1
        if out[-1] == EOS or len(out) >= request.max_tokens or position >= max_model_len:
            return out
