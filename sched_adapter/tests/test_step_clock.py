"""Time as the limiter sees it, and the length of steps."""

from __future__ import annotations

import logging

import pytest

from sched_adapter.clock import StepClock
from sched_adapter.steptime import StepTime

MS = 1_000_000
HOUR = 3_600 * 1_000 * MS


def test_a_step_back_loses_the_gap_and_freezes_nobody() -> None:
    instants = iter([5 * HOUR, 4 * HOUR, 4 * HOUR + 3, 9 * HOUR])
    clock = StepClock(lambda: next(instants))
    assert [clock.read() - 5 * HOUR for _ in range(4)] == [0, 0, 3, 5 * HOUR]


def test_a_look_starts_no_step_and_is_never_before_the_last() -> None:
    instants = iter([7, 100, 50])
    clock = StepClock(lambda: next(instants))
    assert clock.peek() == 7
    assert clock.read() == 100
    assert clock.peek() == 100


def test_it_may_step_back_again_and_again() -> None:
    instants = iter([100, 60, 70, 20, 25, 26])
    clock = StepClock(lambda: next(instants))
    assert [clock.read() for _ in range(5)] == [100, 100, 110, 110, 115]
    assert clock.peek() == 116  # at the pace of the steps, not of the source


def slow(steps: StepTime, count: int, length_ns: int) -> None:
    for n in range(count):
        steps.begin(n * length_ns)
        steps.end((n + 1) * length_ns)


def test_long_steps_are_told_once_with_the_time_and_the_rate(
    caplog: pytest.LogCaptureFixture,
) -> None:
    steps = StepTime(100 * MS, silent=False)
    with caplog.at_level(logging.WARNING):
        slow(steps, 40, 250 * MS)
    (record,) = caplog.records
    assert "250 ms" in record.message
    assert "8.0 of 10" in record.message
    assert "\n" not in record.message


@pytest.mark.parametrize(("silent", "length_ms"), [(True, 250), (False, 99)])
def test_nothing_is_said_where_nothing_is_lost(
    silent: bool, length_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        slow(StepTime(100 * MS, silent), 40, length_ms * MS)
    assert not caplog.records


def test_idle_time_is_no_part_of_a_step() -> None:
    steps = StepTime(100 * MS, silent=True)
    assert steps.begin(0) is None
    steps.end(30 * MS)
    assert steps.begin(90 * MS) == 30 * MS
    assert steps.begin(100 * MS) is None  # nothing ran since
    steps.end(150 * MS)
    assert steps.begin(HOUR) is None  # and after a rest none has just ended
    assert steps.length_ns == 50 * MS


def test_reachable_rates_are_those_of_the_bound() -> None:
    steps = StepTime(100 * MS, silent=True)
    slow(steps, 2, 150 * MS)
    steps.begin(300 * MS)
    assert float(steps.reachable(100)) == pytest.approx(73.3, abs=0.05)
    assert steps.reachable(1) == 1
