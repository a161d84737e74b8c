"""Ratios of times, each the best of several processes: `tox -e bench`, on demand."""

from __future__ import annotations

import pytest

from benchmarks.ratios.__main__ import Times, best_ratio, measured
from benchmarks.ratios.memory import SIZES, bytes_per_user
from benchmarks.ratios.peers import GCRA

PROCESSES = 5
# Promised are 1.3, 1.3 and 1.4. In 20 runs of unchanged code, on two cores with a load of 6, it was
# 0.86 to 0.91, 0.97 to 1.15 and 0.69 to 1.08, so one and a half times as much is caught for one
# user; in a crowd, where caches decide, one and a half times the floor is.
OVER_FLOOR = {"allowed": 1.1, "denied": 1.3, "10,000 users": 1.3}
BELOW_PEERS = 15
BYTES_PER_USER = 110
GROWTH = 1.5


@pytest.fixture(scope="module")
def verbs() -> list[Times]:
    return [measured("verbs") for _ in range(PROCESSES)]


@pytest.fixture(scope="module")
def steps() -> list[Times]:
    return [measured("steps") for _ in range(2)]


@pytest.mark.parametrize(("kind", "bound"), OVER_FLOOR.items())
def test_gcra_costs_hardly_more_than_a_dict_and_ints(
    verbs: list[Times], kind: str, bound: float
) -> None:
    assert best_ratio(verbs, kind, "gcra", "floor") <= bound


@pytest.mark.parametrize("peer", GCRA)
def test_gcra_is_much_faster_than_the_peers(verbs: list[Times], peer: str) -> None:
    assert 1 / best_ratio(verbs, "peers", "gcra", peer) >= BELOW_PEERS


@pytest.mark.parametrize("users", SIZES)
def test_a_user_takes_little_memory(users: int) -> None:
    assert bytes_per_user("gcra", users) <= BYTES_PER_USER


@pytest.mark.parametrize(
    ("what", "few", "many"), [("residents", "1024", "10240"), ("waiting", "10", "10000")]
)
def test_a_step_does_not_loop_over_those_that_it_cannot_serve(
    steps: list[Times], what: str, few: str, many: str
) -> None:
    assert best_ratio(steps, what, many, few) <= GROWTH
