"""From the instants of two lives, alone and beside others, to ratios.

A ratio is the median of the ratios of the same duration in both lives: first token by question, gap
by question and token. The ratio of the two medians is nearly the same on a quiet machine, and on a
busy one it wanders two to four times as far: a machine that is slow for some of the questions makes
durations of two kinds, and a median between them may lie with either. Durations of a pair are
some steps apart. Drawn again from the same questions, on two cores with a load of 2, the ratios of
80 questions vary by 0.01 (first token; 0.02 beside the quickest flood) and 0.003 (gap).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from benchmarks.isolation.lane import NS_PER_S, Question


@dataclass(frozen=True)
class Compared:
    """The same durations in both lives: medians and 99th percentiles in ms, and their ratio."""

    alone_ms: float
    beside_ms: float
    ratio: float
    """Beside over alone, in pairs."""
    alone_p99_ms: float
    beside_p99_ms: float

    @classmethod
    def of(cls, alone_ns: Sequence[int], beside_ns: Sequence[int]) -> Compared:
        pairs = zip(alone_ns, beside_ns, strict=True)
        return cls(
            alone_ms=round(median(alone_ns) / 1e6, 3),
            beside_ms=round(median(beside_ns) / 1e6, 3),
            ratio=round(median(beside / alone for alone, beside in pairs), 4),
            alone_p99_ms=round(_p99(alone_ns) / 1e6, 3),
            beside_p99_ms=round(_p99(beside_ns) / 1e6, 3),
        )


@dataclass(frozen=True)
class Result:
    """Of one situation."""

    questions: int
    first: Compared
    """From a question's arrival to the end of the step that gives its first token."""
    gap: Compared
    """From one token of an answer to the next."""
    held: float
    """Share of the questions that arrived while a step was under way that served others."""
    others_per_s: float
    """Tokens of the others per second of their engine's own time."""
    steps_per_token: float
    """Of an answer after its first token, beside the others. 1: it was in every step."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Result:
        compared = {key: Compared(**data[key]) for key in ("first", "gap")}
        return cls(**{**data, **compared})


def result(
    alone: Sequence[Question], beside: Sequence[Question], others_ns: Sequence[int], tokens: int
) -> Result:
    """The figures of the same questions in two lives; `tokens` is the length of each answer.

    Raises:
        ValueError: an answer is not whole, or the lives are of other questions.
    """
    for question in (*alone, *beside):
        if len(question.tokens_ns) != tokens:
            raise ValueError(f"{len(question.tokens_ns)} tokens in an answer of {tokens}")
    if [question.request for question in alone] != [question.request for question in beside]:
        raise ValueError("the two were not asked the same questions")
    start_ns, end_ns = beside[0].arrived_ns, beside[-1].tokens_ns[-1]
    within = sum(start_ns <= at <= end_ns for at in others_ns)
    steps = sum(question.steps[-1] - question.steps[0] for question in beside)
    return Result(
        questions=len(beside),
        first=Compared.of(_firsts(alone), _firsts(beside)),
        gap=Compared.of(_gaps(alone), _gaps(beside)),
        held=sum(question.held for question in beside) / len(beside),
        others_per_s=round(within * NS_PER_S / (end_ns - start_ns), 3),
        steps_per_token=steps / (len(beside) * (tokens - 1)),
    )


def _firsts(questions: Sequence[Question]) -> list[int]:
    return [question.tokens_ns[0] - question.arrived_ns for question in questions]


def _gaps(questions: Sequence[Question]) -> list[int]:
    instants = (itertools.pairwise(question.tokens_ns) for question in questions)
    return [b - a for a, b in itertools.chain.from_iterable(instants)]


def _p99(values: Sequence[int]) -> int:
    return sorted(values)[int(0.99 * (len(values) - 1))]
