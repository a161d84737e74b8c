"""Structured output without a grammar engine: a scripted grammar behind vLLM's own manager.

It keeps what matters to a scheduler: the mask of a step depends on every token accepted before
it, a wrong token is refused, compilation may take its time or fail.
"""

from __future__ import annotations

from concurrent.futures import Future

import torch
from vllm.v1.structured_output.backend_types import (
    StructuredOutputBackend,
    StructuredOutputGrammar,
)

from conformance.engine.model import EOS, FIRST_TOKEN, VOCAB

__all__ = ["ScriptedBackend", "ScriptedGrammar", "allowed_tokens", "pending_grammar"]

_WORDS = (VOCAB + 31) // 32


def allowed_tokens(last: int, done: int, length: int) -> tuple[int, ...]:
    """Tokens that may come after `done` accepted ones, the last of them `last` (0 at the start).

    Three neighbours that depend on the last token; after `length` tokens only EOS.
    """
    if done >= length:
        return (EOS,)
    base = (last * 31 + done * 7) % (VOCAB - FIRST_TOKEN - 3)
    return tuple(FIRST_TOKEN + base + i for i in range(3))


class ScriptedGrammar(StructuredOutputGrammar):
    """A language of exactly `length` tokens and an EOS, each bound by the one before."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.accepted: list[int] = []

    def _allowed(self) -> tuple[int, ...]:
        last = self.accepted[-1] if self.accepted else 0
        return allowed_tokens(last, len(self.accepted), self.length)

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        for token in tokens:
            if self.is_terminated() or token not in self._allowed():
                return False
            self.accepted.append(token)
        return True

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        before = len(self.accepted)
        good = 0
        while good < len(tokens) and self.accept_tokens("", tokens[good : good + 1]):
            good += 1
        del self.accepted[before:]
        return tokens[:good]

    def rollback(self, num_tokens: int) -> None:
        if num_tokens:
            del self.accepted[-num_tokens:]

    def fill_bitmask(self, bitmask: torch.Tensor, batch_index: int) -> None:
        words = [0] * _WORDS
        for token in self._allowed():
            words[token // 32] |= 1 << (token % 32)
        signed = [w - (1 << 32) if w >> 31 else w for w in words]
        bitmask[batch_index].copy_(torch.tensor(signed, dtype=torch.int32))

    def is_terminated(self) -> bool:
        return bool(self.accepted) and self.accepted[-1] == EOS

    def reset(self) -> None:
        self.accepted.clear()


class ScriptedBackend(StructuredOutputBackend):
    """Makes nothing by itself: the harness hands each request its grammar."""

    def compile_grammar(self, request_type, grammar_spec, stop_token_ids=None):  # type: ignore[no-untyped-def]
        return ScriptedGrammar(int(grammar_spec))

    def allocate_token_bitmask(self, max_num_seqs: int) -> torch.Tensor:
        return torch.full((max_num_seqs, _WORDS), -1, dtype=torch.int32)

    def destroy(self) -> None:
        return None


def pending_grammar() -> Future[StructuredOutputGrammar]:
    """A compilation under way: `set_result(ScriptedGrammar(n))` or `set_exception` ends it."""
    return Future()
