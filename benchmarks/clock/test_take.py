"""`try_take` of each backend and the peers, for one user and for many."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, cycle
from typing import Any

import pytest

from benchmarks.ratios.floor import bare
from benchmarks.ratios.peers import PEERS, RATE
from limiters import make_limiter

BACKENDS = ("gcra", "token_bucket", "rolling_window")
PACE_NS = 100_000_000
ROUNDS = {"rounds": 50, "iterations": 1_000}


def takes() -> dict[str, Callable[[str, int], bool]]:
    ours = {name: make_limiter(name, default_rate=10).try_take for name in BACKENDS}
    return {"floor": bare(), **ours}


@pytest.mark.parametrize("name", takes())
@pytest.mark.benchmark(group="try_take, allowed")
def test_allowed(benchmark: Any, name: str) -> None:
    take, instants = takes()[name], count(step=PACE_NS)
    benchmark.pedantic(lambda: take("user", next(instants)), **ROUNDS)


@pytest.mark.parametrize("name", takes())
@pytest.mark.benchmark(group="try_take, denied")
def test_denied(benchmark: Any, name: str) -> None:
    take = takes()[name]
    while take("user", 0):
        pass
    benchmark.pedantic(lambda: take("user", 1), **ROUNDS)


@pytest.mark.parametrize("users", [10_000, 1_000_000])
@pytest.mark.parametrize("name", takes())
@pytest.mark.benchmark(group="try_take, many users")
def test_many_users(benchmark: Any, name: str, users: int) -> None:
    take, names = takes()[name], [f"user-{n}" for n in range(users)]
    for user in names:
        take(user, 0)
    turns, now_ns = cycle(names), 10**12  # everybody has quota for as long as this takes
    benchmark.pedantic(lambda: take(next(turns), now_ns), **ROUNDS)


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.benchmark(group="a take that passes, of the peers")
def test_peers(benchmark: Any, peer: str) -> None:
    take = PEERS[peer]()
    benchmark.pedantic(lambda: take("user"), rounds=20, iterations=200)


@pytest.mark.benchmark(group="a take that passes, of the peers")
def test_gcra_beside_the_peers(benchmark: Any) -> None:
    take, instants = make_limiter("gcra", default_rate=RATE).try_take, count(step=1_000)
    benchmark.pedantic(lambda: take("user", next(instants)), rounds=20, iterations=200)
