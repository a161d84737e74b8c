"""What pairs of runs are made into; the engines themselves run on demand."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.throughput.ratios import Result, result
from benchmarks.throughput.run import Spent


def test_ratios_are_of_pairs_and_not_of_sums() -> None:
    # The machine got slower by ten between the pairs; in each the adapter took 4 % longer.
    pairs = [
        (
            Spent(wall, wall / 2, 100, Counter(schedule=wall / 10)),
            Spent(1.04 * wall, 1.1 * wall / 2, 100, Counter(schedule=0.12 * wall)),
        )
        for wall in (1.0, 1.0, 10.0, 10.0)
    ]
    found = result(pairs)
    assert found.throughput.median == pytest.approx(1 / 1.04)
    assert found.throughput.lower == found.throughput.upper == found.throughput.median
    assert found.cpu.median == pytest.approx(1.1)
    assert found.more["schedule"] == pytest.approx(0.02)
    assert Result.from_json(found.to_json()) == found


def test_unlike_work_is_refused() -> None:
    with pytest.raises(ValueError, match="100 and 99"):
        result([(Spent(1, 1, 100), Spent(1, 1, 99))] * 2)
