"""What a run shows from outside, judged from SchedulerOutput and the outputs alone.

Nothing here reads a scheduler's own books, so it holds for any scheduler.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

__all__ = ["History", "RequestLog", "SampleJudge", "StepLog", "Tally", "digest"]


class SampleJudge:
    """Tells which requests of a SchedulerOutput sample a token, and at which position.

    A request samples iff its computed tokens after the step reach all the tokens it has, those
    still in flight counted on both sides. Both numbers are in the output: `num_computed_tokens`
    before the step, and prompt length plus `num_output_tokens`, in which async scheduling counts
    the tokens that no one has seen yet.
    """

    def __init__(self) -> None:
        self._prompt_len: dict[str, int] = {}

    def judge(self, output: Any) -> dict[str, int]:
        """request id -> position of the token sampled in this step (0 is the prompt's first)."""
        for request_id in output.finished_req_ids:
            self._prompt_len.pop(request_id, None)
        scheduled = output.num_scheduled_tokens
        samples: dict[str, int] = {}
        for new in output.scheduled_new_reqs:
            total = len(new.prompt_token_ids)
            self._prompt_len[new.req_id] = total
            end = new.num_computed_tokens + scheduled[new.req_id]
            if end >= total:
                samples[new.req_id] = end
        cached = output.scheduled_cached_reqs
        for request_id, computed, outputs in zip(
            cached.req_ids, cached.num_computed_tokens, cached.num_output_tokens, strict=True
        ):
            end = computed + scheduled[request_id]
            if end >= self._prompt_len[request_id] + outputs:
                samples[request_id] = end
        return samples


def digest(output: Any) -> tuple[Any, ...]:
    """A SchedulerOutput as plain comparable data: equal digests mean the same step for a worker."""
    cached = output.scheduled_cached_reqs
    return (
        tuple(output.num_scheduled_tokens.items()),
        tuple(
            (n.req_id, tuple(n.prompt_token_ids), _blocks(n.block_ids), n.num_computed_tokens)
            for n in output.scheduled_new_reqs
        ),
        tuple(
            zip(
                cached.req_ids,
                map(_blocks, cached.new_block_ids),
                cached.num_computed_tokens,
                cached.num_output_tokens,
                strict=True,
            )
        ),
        tuple(sorted(cached.resumed_req_ids)),
        tuple(sorted((i, tuple(t)) for i, t in cached.all_token_ids.items())),
        tuple(sorted(output.preempted_req_ids or ())),
        tuple(sorted(output.finished_req_ids)),
        output.has_structured_output_requests,
        output.pending_structured_output_tokens,
    )


def _blocks(ids: Any) -> tuple[tuple[int, ...], ...] | None:
    return None if ids is None else tuple(map(tuple, ids))


@dataclass(slots=True)
class RequestLog:
    """One request from the outside. Instants are ns of the engine's clock."""

    id: str
    user: str | None
    prompt: list[int]
    max_tokens: int
    stops: tuple[int, ...] = ()
    script: dict[int, int] = field(default_factory=dict)
    sampling_seed: int | None = None
    grammar: int | None = None
    resumable: bool = False
    arrival_ns: int = 0
    tokens: list[int] = field(default_factory=list)
    token_ns: list[int] = field(default_factory=list)
    dispatch_ns: list[int] = field(default_factory=list)
    admitted_ns: int | None = None
    finish_ns: int | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    preemptions: int = 0
    inputs: list[tuple[list[int], int]] = field(default_factory=list)
    """What a session was fed after its first prompt: (tokens, max_tokens)."""
    turns: list[tuple[str, list[int]]] = field(default_factory=list)
    """A session's ended turns: (finish reason, tokens)."""
    lost: Counter[str] = field(default_factory=Counter)
    next_position: int = 0

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    def finish(self, reason: str, now_ns: int) -> None:
        """Note the end; the first one counts."""
        if self.finish_reason is None:
            self.finish_reason = reason
            self.finish_ns = now_ns

    def end_turn(self, reason: str) -> None:
        start = sum(len(tokens) for _, tokens in self.turns)
        self.turns.append((reason, self.tokens[start:]))


@dataclass(slots=True)
class StepLog:
    """One call of the engine's step function."""

    index: int
    now_ns: int
    """Instant of schedule()."""
    idle: bool = False
    """schedule() was not called: the scheduler had no requests."""
    scheduled: dict[str, int] = field(default_factory=dict)
    """request id -> tokens dispatched."""
    sampled: dict[str, int] = field(default_factory=dict)
    """request id -> position of the token that this step samples."""
    admitted: tuple[str, ...] = ()
    """New in the batch for the first time (or for a session's next turn)."""
    resumed: tuple[str, ...] = ()
    """Back in the batch after preemption."""
    preempted: tuple[str, ...] = ()
    delivered: dict[str, int] = field(default_factory=dict)
    """request id -> token handed out at the end of this step (depth 2: of the step before)."""
    finished: dict[str, str] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    """request id -> why a sampled token was not handed out: abort, lookahead, stale, error."""
    digest: tuple[Any, ...] | None = None
    """`digest` of the SchedulerOutput, when the engine keeps them."""

    @property
    def batch_size(self) -> int:
        return len(self.scheduled)

    @property
    def num_tokens(self) -> int:
        return sum(self.scheduled.values())


@dataclass(slots=True)
class Tally:
    """Tokens of one user: dispatched = delivered + lost + in flight, always."""

    dispatched: int = 0
    delivered: int = 0
    lost: Counter[str] = field(default_factory=Counter)

    @property
    def in_flight(self) -> int:
        return self.dispatched - self.delivered - self.lost.total()


class History:
    """All steps of a run, and per user the instants at which sampled tokens were dispatched.

    `keep_steps`: how many StepLogs to keep, None for all. Instants and tallies are always kept
    unless `keep_instants` is False, for soaks.
    """

    def __init__(self, keep_steps: int | None = None, keep_instants: bool = True) -> None:
        self.steps: list[StepLog] = []
        self.tallies: defaultdict[str | None, Tally] = defaultdict(Tally)
        self._instants: defaultdict[str | None, list[int]] = defaultdict(list)
        self._keep_steps = keep_steps
        self._keep_instants = keep_instants

    def dispatches(self, user: str | None) -> list[int]:
        """Instants (ns) of this user's sampled tokens, one entry a token, in order."""
        return self._instants.get(user, [])

    def users(self) -> list[str | None]:
        return list(self.tallies)

    def dispatched(self, user: str | None, now_ns: int) -> None:
        self.tallies[user].dispatched += 1
        if self._keep_instants:
            self._instants[user].append(now_ns)

    def add(self, step: StepLog) -> None:
        self.steps.append(step)
        if self._keep_steps is not None and len(self.steps) > 2 * self._keep_steps:
            del self.steps[: -self._keep_steps]
