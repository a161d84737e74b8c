"""Promises against the definition, by brute force over every closed window."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from conformance.endpoint.promise import Even, Log, Promise, fullest

MS = 1_000_000


def broken_by_definition(promise: Promise, instants: list[int]) -> bool:
    return any(
        j - i + 1 > promise.most(instants[j] - instants[i])
        for i in range(len(instants))
        for j in range(i, len(instants))
    )


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", [Even, Log])
def test_worst_window_is_found_exactly_when_one_exists(kind, seed):
    rng = random.Random(seed)
    rate = Fraction(rng.choice([1, 10, 20, 33, 100, 997]), rng.choice([1, 1, 3, 7]))
    promise = kind(rate, rng.choice([0, 10, 100, 1000]) * MS)
    verdicts = set()
    for _ in range(30):
        scale = int(1e9 / rate * rng.choice([0.7, 0.95, 1, 1.05, 1.5]))
        now, instants = rng.randrange(-(10**12), 10**12), []
        for _ in range(rng.randrange(1, 40)):
            now += rng.choice([0, scale, rng.randrange(2 * scale + 1)])
            instants.append(now)
        worst = promise.worst(instants)
        assert (worst is not None) == broken_by_definition(promise, instants)
        verdicts.add(worst is None)
        if worst is not None:
            assert worst.tokens > worst.promised
            held = [t for t in instants if worst.start_ns <= t <= worst.end_ns]
            assert len(held) >= worst.tokens
    assert verdicts, "no case was drawn"


def greedy(promise: Even, step_ns: int, steps: int) -> list[int]:
    """The most that GCRA grants at these steps, in exact fractions."""
    tat, granted = Fraction(0), []
    for now in range(0, steps * step_ns, step_ns):
        while tat - now <= promise.burst_ns:
            tat = max(tat, Fraction(now)) + Fraction(10**9) / promise.rate
            granted.append(now)
    return granted


def test_the_most_that_gcra_grants_holds_and_one_token_more_does_not():
    promise = Even(Fraction(10), 100 * MS)
    granted = greedy(promise, 30 * MS, 100)
    assert granted[:5] == [0, 0, 120 * MS, 210 * MS, 300 * MS]
    assert promise.worst(granted) is None
    early = [*granted[:2], granted[2] - 30 * MS, *granted[3:]]
    worst = promise.worst(early)
    assert worst is not None
    assert (worst.start_ns, worst.end_ns, worst.tokens, worst.promised) == (0, 90 * MS, 3, 2)


def test_a_nanosecond_decides():
    promise = Even(Fraction(10), 0)
    assert promise.worst([5, 5 + 100 * MS]) is None
    assert promise.worst([5, 4 + 100 * MS]) is not None
    log = Log(Fraction(10), 200 * MS)
    assert log.worst([0, 0, 200 * MS, 200 * MS]) is None
    assert log.worst([0, 0, 200 * MS - 1]) is not None


def test_figures_of_the_definition():
    even = Even(Fraction(20))
    assert (even.most(0), even.most(10**9), even.spacing_ns()) == (3, 23, 50 * MS)
    assert even.reach(100 * MS, 4) == 20
    assert even.reach(60 * MS, 1) is None, "one stream cannot use 20 tok/s at 60 ms a step"
    assert even.saved_ns(5) == 100 * MS
    assert Even(Fraction(3)).spacing_ns() == 333_333_334
    log = Log(Fraction(20), 10**9)
    assert (log.k, log.most(0), log.most(10**9 - 1), log.most(10**9)) == (20, 20, 20, 40)
    assert log.spacing_ns() == 10**9
    assert log.reach(30 * MS, 4) is None, "4 streams do not use up a log of 20"
    for limit, k in ((10, 1), (20, 2), (100, 10)):
        short = Log(Fraction(limit))
        assert short.k == k
        assert float(short.reach(30 * MS, k) / limit) == pytest.approx(1 / 1.3)


def test_fullest_window_is_closed():
    assert fullest([0, 1, 10, 11], 10) == 3
    assert fullest([0, 11], 10) == 1
    assert fullest([], 10) == 0
