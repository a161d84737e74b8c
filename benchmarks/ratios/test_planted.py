"""The gates of `test_ratios` against slowdowns planted for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks import scenes
from benchmarks.ratios import verbs
from benchmarks.ratios.memory import bytes_per_user
from benchmarks.ratios.steps import PAIRS
from benchmarks.ratios.test_ratios import BYTES_PER_USER, GROWTH, OVER_FLOOR
from benchmarks.ratios.timing import least_ns
from limiters import Gcra
from sched_adapter.scheduler import OutputRateScheduler

MORE = 1.5


def slowed(take: Callable[..., Any], loops: int) -> Callable[..., Any]:
    def planted(self: Gcra, user: str, now_ns: int) -> Any:
        for _ in range(loops):
            pass
        return take(self, user, now_ns)

    return planted


def ratio(kind: str) -> float:
    """Of GCRA over the floor."""
    make, times = verbs.KINDS[kind]
    rounds = {name: each for name, each in make().items() if name in ("gcra", "floor")}
    took = least_ns(rounds, 3 * times)
    return took["gcra"] / took["floor"]


@pytest.mark.parametrize("kind", OVER_FLOOR)
def test_half_as_much_again_is_caught(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    plain, before = Gcra.try_take, ratio(kind)
    assert before <= OVER_FLOOR[kind]
    for loops in range(12):
        monkeypatch.setattr(Gcra, "try_take", slowed(plain, loops))
        planted = ratio(kind)
        if planted >= MORE * (max(1, before) if kind == "10,000 users" else before):
            break
    print(f"{kind}: {before:.2f}, planted {planted:.2f} with {loops} loops")
    assert planted > OVER_FLOOR[kind]


def test_a_user_kept_as_a_tuple_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Gcra._store

    def store(self: Gcra, user: str, *args: Any) -> None:
        plain(self, user, *args)
        self._rounding[user] = (self._tat[user], 0)  # type: ignore[assignment]

    monkeypatch.setattr(Gcra, "_store", store)
    assert bytes_per_user("gcra", 10_000) > BYTES_PER_USER


def grows(what: str) -> float:
    """CPU of a step of the larger scene over that of the smaller one."""
    few, many = ((scenes.engine(scene), scene) for scene in PAIRS[what].values())
    return min(scenes.cpu_ns(*many) for _ in range(3)) / min(scenes.cpu_ns(*few) for _ in range(3))


PLANTS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "list(residents)": ("residents", lambda self: list(self.residents.everyone())),
    "set(residents)": ("residents", lambda self: set(self.residents.everyone())),
    "sorted ids of all requests": ("waiting", lambda self: sorted(self.requests)),
    "a membership test in the queue": (
        "waiting",
        lambda self: None in list(self.requests.values()),
    ),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_loop_in_c_is_caught(monkeypatch: pytest.MonkeyPatch, plant: str) -> None:
    what, loop = PLANTS[plant]
    schedule = OutputRateScheduler.schedule

    def planted(self: Any, *args: Any, **kwargs: Any) -> Any:
        loop(self)
        return schedule(self, *args, **kwargs)

    monkeypatch.setattr(OutputRateScheduler, "schedule", planted)
    found = grows(what)
    print(f"{plant}: {found:.2f} x")
    assert found > GROWTH
