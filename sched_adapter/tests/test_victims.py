"""The choice of victims against every subset there is."""

from __future__ import annotations

from itertools import combinations, product

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


def test_small_houses_one_by_one() -> None:
    """Ties abound here: tokens first, then the number of requests."""
    shapes = list(product((1, 2), (0, 1)))
    for size in range(1, 5):
        for house in product(shapes, repeat=size):
            pool = [Holder(name, *shape) for name, shape in enumerate(house)]
            for blocks in range(1, sum(h.frees for h in pool) + 1):
                ways = (
                    cost(pool, [h.request for h in way])
                    for count in range(size + 1)
                    for way in combinations(pool, count)
                    if sum(h.frees for h in way) >= blocks
                )
                assert cost(pool, choose(pool, blocks)) == min(ways)


@given(holders, st.integers(1, 15))
def test_among_alike_those_named_first_go(pool: list[Holder[int]], blocks: int) -> None:
    chosen = set(choose(pool, blocks))
    for early, late in combinations(pool, 2):
        if early[1:] == late[1:] and late.request in chosen:
            assert early.request in chosen


@pytest.fixture
def greedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every house is too large for the exact choice."""
    monkeypatch.setattr(victims, "_EXACT_UP_TO", 0)


class Opaque:
    """A request has no order of its own."""


def test_requests_are_never_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Opaque(), Opaque()
    pool = [Holder(first, 1, 1), Holder(second, 1, 1)]
    assert choose(pool, 1) == [first]
    monkeypatch.setattr(victims, "_EXACT_UP_TO", 0)
    assert choose(pool, 1) == [first]


@pytest.mark.usefixtures("greedy")
def test_greedy_takes_those_that_free_most_where_tokens_tie() -> None:
    assert choose([Holder("a", 4, 5), Holder("b", 6, 5), Holder("c", 10, 5)], 10) == ["c"]


@pytest.mark.usefixtures("greedy")
def test_greedy_spares_the_dearest_that_it_can() -> None:
    assert choose([Holder("a", 5, 1), Holder("b", 5, 2), Holder("c", 6, 3)], 11) == ["a", "c"]


@pytest.mark.usefixtures("greedy")
@pytest.mark.parametrize("blocks", [-1, 0, 5])
def test_greedy_too_takes_nobody_in_vain(blocks: int) -> None:
    assert choose([Holder("a", 2, 1), Holder("b", 2, 2)], blocks) == []


@pytest.mark.parametrize("blocks", [-1, 0])
def test_no_need_takes_nobody(blocks: int) -> None:
    assert choose([Holder("a", 2, 1)], blocks) == []


def test_the_exact_choice_holds_to_its_limit_and_who_frees_nothing_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = [Holder("a", 1, 1), Holder("b", 3, 2), Holder("c", 4, 3), Holder("d", 0, 0)]
    monkeypatch.setattr(victims, "_EXACT_UP_TO", 3 * 4)
    assert choose(pool, 4) == ["c"]
    monkeypatch.setattr(victims, "_EXACT_UP_TO", 3 * 4 - 1)
    assert choose(pool, 4) == ["a", "b"]  # as dear, but one request more: greedy


def test_a_huge_house_is_decided_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_slow(*args: object) -> list[int]:
        raise AssertionError("the exact choice was tried on a table that is too large")

    monkeypatch.setattr(victims, "_exact", too_slow)
    pool = [Holder(n, 4, 64) for n in range(10_000)]
    assert len(choose(pool, 400)) == 100
