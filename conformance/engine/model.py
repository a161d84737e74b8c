"""The scripted model: which token stands at which position, and nothing else.

The token at a position is a pure function of (seed of the model, prompt of the request, seed of
its sampling, position). It does not depend on the batch, the chunks, preemption or time, so any
run of a request can be compared with what it must be, without a second run.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Mapping, Sequence

__all__ = ["EOS", "FIRST_TOKEN", "STOP", "VOCAB", "ScriptedModel"]

VOCAB = 1024
EOS = 2
STOP = 3
# Tokens below stay free for EOS, STOP and a test's own stop tokens.
FIRST_TOKEN = 16

_MASK = (1 << 64) - 1


class ScriptedModel:
    """A language model without weights. `seed` makes another model out of it."""

    __slots__ = ("seed",)

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def key(self, prompt: Sequence[int], sampling_seed: int | None = None) -> int:
        """What `token` needs to know of a request: its prompt and its sampling seed."""
        salt = zlib.crc32(f"{self.seed}/{sampling_seed}".encode())
        return (zlib.crc32(array("q", prompt).tobytes(), salt) << 32) | salt

    @staticmethod
    def token(key: int, position: int) -> int:
        """The token at `position` (0 is the first of the prompt) when nothing is scripted."""
        x = (key + position * 0x9E3779B97F4A7C15) & _MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
        return FIRST_TOKEN + (x >> 33) % (VOCAB - FIRST_TOKEN)

    def prompt(self, length: int, name: str = "") -> list[int]:
        """A prompt of `length` tokens; a longer one of the same name begins with it."""
        key = zlib.crc32(f"prompt/{self.seed}/{name}".encode()) << 32
        return [self.token(key, i) for i in range(length)]

    def completion(
        self,
        prompt: Sequence[int],
        max_tokens: int,
        *,
        script: Mapping[int, int] | None = None,
        stops: Sequence[int] = (EOS,),
        sampling_seed: int | None = None,
        max_model_len: int | None = None,
    ) -> list[int]:
        """The whole output of a request that nobody throttles or aborts.

        `script` maps a position to the token forced there; a token of `stops` is the last one and
        belongs to the output.
        """
        script = script or {}
        key = self.key(prompt, sampling_seed)
        end = len(prompt) + max_tokens
        if max_model_len is not None:
            end = min(end, max_model_len)
        out: list[int] = []
        for position in range(len(prompt), max(end, len(prompt) + 1)):
            token = script.get(position)
            if token is None:
                token = self.token(key, position)
            out.append(token)
            if token in stops:
                break
        return out
