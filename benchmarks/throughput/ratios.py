"""What pairs of runs say: medians of ratios, and how far they spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles

from benchmarks.throughput.run import PARTS, Spent


@dataclass(frozen=True)
class Spread:
    """A median and the quartiles around it."""

    median: float
    lower: float
    upper: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        lower, _, upper = quantiles(values, n=4)
        return cls(median(values), lower, upper)

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.lower:.3f} to {self.upper:.3f})"


@dataclass(frozen=True)
class Result:
    """Of one mode. Ratios are adapter over stock, each of one pair."""

    pairs: int
    stock_tokens_per_s: float
    throughput: Spread
    cpu: Spread
    more: dict[str, float]
    """How much longer the adapter's parts took, each as a share of stock's whole time."""

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, object]) -> Result:
        spreads = {key: Spread(**data[key]) for key in ("throughput", "cpu")}  # type: ignore[arg-type]
        return cls(**{**data, **spreads})  # type: ignore[arg-type]


def result(pairs: Sequence[tuple[Spent, Spent]]) -> Result:
    """The figures of some pairs of (stock, adapter); at least 2."""
    for stock, adapter in pairs:
        if stock.tokens != adapter.tokens:
            raise ValueError(f"unlike work: {stock.tokens} and {adapter.tokens} tokens")
    return Result(
        pairs=len(pairs),
        stock_tokens_per_s=median(stock.tokens / stock.wall_s for stock, _ in pairs),
        throughput=Spread.of([stock.wall_s / adapter.wall_s for stock, adapter in pairs]),
        cpu=Spread.of([adapter.cpu_s / stock.cpu_s for stock, adapter in pairs]),
        more={
            part: median(
                (ours.parts_s[part] - its.parts_s[part]) / its.wall_s for its, ours in pairs
            )
            for part in PARTS
        },
    )
