"""The choice of victims against every subset there is."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sched_adapter import victims
from sched_adapter.victims import Holder, choose

holders = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 40)), max_size=7).map(
    lambda pairs: [Holder(name, *pair) for name, pair in enumerate(pairs)]
)


def cost(pool: list[Holder[int]], chosen: list[int]) -> tuple[int, int]:
    return sum(h.recompute for h in pool if h.request in chosen), len(chosen)


@given(holders, st.integers(0, 15))
def test_least_recomputed_then_fewest_and_none_where_all_would_not_do(
    pool: list[Holder[int]], blocks: int
) -> None:
    chosen = choose(pool, blocks)
    ways = [
        [h.request for h in way]
        for size in range(len(pool) + 1)
        for way in combinations(pool, size)
        if sum(h.frees for h in way) >= blocks
    ]
    if not blocks or not ways:
        assert chosen == []
    else:
        assert cost(pool, chosen) == min(cost(pool, way) for way in ways)


@given(holders, st.integers(1, 15))
def test_the_greedy_choice_covers_the_need_and_holds_nobody_it_could_spare(
    pool: list[Holder[int]], blocks: int
) -> None:
    able = [h for h in pool if h.frees]
    if sum(h.frees for h in able) < blocks:
        return
    chosen = victims._greedy(able, blocks)
    freed = {h.request: h.frees for h in able}
    total = sum(freed[request] for request in chosen)
    assert total >= blocks
    assert all(total - freed[request] < blocks for request in chosen)


def test_a_huge_house_is_decided_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_slow(*args: object) -> list[int]:
        raise AssertionError("the exact choice was tried on a table that is too large")

    monkeypatch.setattr(victims, "_exact", too_slow)
    pool = [Holder(n, 4, 64) for n in range(10_000)]
    assert len(choose(pool, 400)) == 100
