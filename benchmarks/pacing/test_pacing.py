"""The rate that was configured is the rate that is achieved, over 60 simulated seconds."""

from __future__ import annotations

import pytest

from benchmarks.pacing.run import BACKENDS, Pace, run

EVEN = [backend for backend in BACKENDS if backend.reaches]
LEAST = 0.999


@pytest.mark.parametrize("depth", [1, 2], ids=["sync", "async"])
@pytest.mark.parametrize("steps", ["30 ms", "5 to 40 ms"])
@pytest.mark.parametrize("backend", EVEN, ids=lambda backend: backend.name)
def test_the_rate_is_achieved_and_not_exceeded(backend, steps: str, depth: int) -> None:
    longest = 40e6
    for rate, pace in run(backend, steps, depth).items():
        assert LEAST <= pace.achieved <= pace.most, rate
        # Late by the step in which its quota came back, and no more.
        assert max(pace.lateness) <= longest, rate
        assert pace.gap(1) <= 1 + longest * float(pace.rate) / 1e9, rate


def test_the_window_loses_what_its_definition_says() -> None:
    # 20/s in steps of 30 ms: 2 tokens in 0.1 s are 2 in 4 steps, which are 0.12 s.
    [window] = [backend for backend in BACKENDS if backend.title == "rolling window, 0.1 s"]
    paces = run(window, "30 ms")
    assert paces["20"].achieved == pytest.approx(0.1 / 0.12, abs=0.002)


def test_a_pace_that_falls_short_or_exceeds_is_told() -> None:
    from fractions import Fraction

    def pace(tokens: int) -> Pace:
        return Pace(Fraction(10), tokens, [], [])

    # 600 tokens and the two of a full quota.
    assert pace(602).most == pytest.approx(pace(602).achieved)
    assert pace(603).achieved > pace(603).most
    assert pace(600).achieved >= LEAST > pace(599).achieved
