"""What a judgement looks like: which rule, whether it holds, and the figures it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Verdict:
    """One rule, judged once.

    `figures` are plain numbers and strings under names that carry their unit (`gap_ms`, `tok_s`).
    `message` is one line that reads well whether the rule holds or not.
    """

    rule: str
    ok: bool
    message: str
    figures: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "figures", MappingProxyType(dict(self.figures)))

    def __str__(self) -> str:
        return f"{'holds ' if self.ok else 'BROKEN'} {self.rule}: {self.message}"


def ms(ns: float) -> float:
    """Nanoseconds as milliseconds, rounded for reading."""
    return round(ns / 1e6, 1)


def percentile(values: list[int], per_cent: float) -> int:
    """The smallest of `values` that at least `per_cent` of them do not exceed; 0 if empty."""
    if not values:
        return 0
    ordered = sorted(values)
    rank = -(-len(ordered) * per_cent // 100)
    return ordered[max(0, int(rank) - 1)]
