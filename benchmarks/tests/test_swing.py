"""The swing's figures on series that are known, and the claim on a small crowd."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks.swing.__main__ import PICTURE
from benchmarks.swing.figures import swing
from benchmarks.swing.run import BACKENDS, STEPS_PER_S, Crowd, batches

GCRA, _, _, WINDOW_1S = BACKENDS


@pytest.mark.parametrize(("hz", "amplitude"), [(1, 0.5), (1, 1.0), (7, 0.3)])
def test_a_known_swing_is_read_off(hz: int, amplitude: float) -> None:
    series = [
        round(10_000 * (1 + amplitude * math.cos(2 * math.pi * hz * n / STEPS_PER_S)))
        for n in range(3 * STEPS_PER_S)
    ]
    found = swing(series)
    assert found.mean == pytest.approx(10_000, rel=1e-3)
    assert found.peak_to_mean == pytest.approx(1 + amplitude, rel=1e-3)
    assert found.strongest_hz == pytest.approx(hz)
    assert found.strongest == pytest.approx(amplitude, abs=1e-3)
    assert found.at_1_hz == pytest.approx(amplitude if hz == 1 else 0, abs=1e-3)


def test_one_pulse_a_second_swings_twice_its_mean() -> None:
    found = swing(([100] + [0] * (STEPS_PER_S - 1)) * 4)
    assert found.at_1_hz == pytest.approx(2)
    assert found.strongest_hz == pytest.approx(1)
    assert found.peak_to_mean == STEPS_PER_S


@pytest.mark.parametrize("length", [0, STEPS_PER_S + 1])
def test_a_part_of_a_second_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="whole seconds"):
        swing([1] * length)


def test_the_window_of_a_second_swings_with_a_period_of_one_and_gcra_does_not() -> None:
    crowd = Crowd("small", users=4, streams=2, rates=(10,))
    window = swing(batches(WINDOW_1S, crowd, seconds=2))
    even = swing(batches(GCRA, crowd, seconds=2))
    assert window.mean == even.mean == 4 * 10 / STEPS_PER_S
    assert window.at_1_hz > 1.9
    assert even.at_1_hz < 0.01
    # But users in phase get their tokens in phase, with GCRA too: once in 1/rate.
    assert even.strongest > 1.9
    assert even.strongest_hz == pytest.approx(10)


def test_the_picture_is_small_enough_to_keep() -> None:
    assert Path(PICTURE).stat().st_size < 150_000
