"""What a client asked for and what it saw, one stream at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

Door = Literal["completions", "chat"]


@dataclass(frozen=True, slots=True)
class Ask:
    """One request.

    Args:
        user: whose quota it uses; None sends no identity.
        prompt: the prompt, or the one user message of a chat.
        max_tokens: at most so many output tokens.
        name: how it is called in messages.
        cancel_after: close the stream once so many tokens came; 0 closes it as soon as the server
            has answered with headers; None never.
        extra: further fields of the request's body.
    """

    user: str | None
    prompt: str
    max_tokens: int
    name: str = ""
    door: Door = "completions"
    temperature: float = 0.0
    cancel_after: int | None = None
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class Stream:
    """What came back, filled in while it comes. Instants are the client's monotonic ns.

    `token_ns[i]` is when the client had read the chunk that carried token i. `tokens_by` says what
    they were counted by: ids, or the server's running usage where it sends no ids.
    """

    ask: Ask
    started_ns: int
    token_ns: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    finish_reason: str | None = None
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    request_id: str | None = None
    tokens_by: Literal["ids", "usage"] = "ids"
    error: str | None = None
    cancelled: bool = False
    ended_ns: int | None = None

    @property
    def user(self) -> str | None:
        return self.ask.user

    @property
    def label(self) -> str:
        """How messages call it."""
        return self.ask.name or f"{self.ask.user}'s stream"

    def first_token_ns(self) -> int | None:
        """Time to the first token, None if none came."""
        return self.token_ns[0] - self.started_ns if self.token_ns else None

    def gaps_ns(self) -> list[int]:
        """The waits between its tokens."""
        return [b - a for a, b in pairwise(self.token_ns)]


def merged(streams: list[Stream]) -> list[int]:
    """The instants of all tokens of the streams, in order."""
    return sorted(ns for stream in streams for ns in stream.token_ns)
