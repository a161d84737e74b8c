"""How long steps take, and when that is worth a word."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from sched_adapter.steptime import StepTime

MS = 1_000_000
BURST = 100 * MS
REST = 100 * MS


class Engine:
    """Runs batches of given lengths, one right after the other."""

    def __init__(self, burst_ns: int = BURST, silent: bool = False) -> None:
        self.steps = StepTime(burst_ns, silent)
        self.now_ns = 0
        self.steps.begin(0)

    def run(self, length_ns: int, count: int = 1) -> None:
        for _ in range(count):
            self.now_ns += length_ns
            self.steps.end(self.now_ns)
            assert self.steps.begin(self.now_ns) == self.steps.length_ns == length_ns


@pytest.fixture
def said() -> Iterator[list[str]]:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("vllm.output_rate")
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)


def test_the_tenth_long_step_in_a_row_is_told(said: list[str]) -> None:
    engine = Engine()
    engine.run(BURST + 1, 9)
    assert not said
    engine.run(BURST + 1)
    assert len(said) == 1


def test_one_step_within_the_burst_breaks_the_row(said: list[str]) -> None:
    engine = Engine()
    for _ in range(3):
        engine.run(BURST + 1, 9)
        engine.run(BURST)
    assert not said


def test_it_is_told_once_however_often_it_comes_back(said: list[str]) -> None:
    engine = Engine()
    for _ in range(3):
        engine.run(2 * BURST, 12)
        engine.run(BURST)
    assert len(said) == 1


def test_what_is_told_names_the_lengths_what_is_reached_and_the_mend(said: list[str]) -> None:
    Engine(burst_ns=1_501_500_000).run(2_501_500_000, 10)
    assert said == [
        "Engine steps take 2502 ms, longer than the output rate's burst of 1502 ms: "
        "users reach at most 6.4 of 10, 60.4 of 100 tokens/s. "
        "Set --output-rate-burst-ms to auto, or to more than a step."
    ]


def test_an_output_before_the_first_step_is_no_step() -> None:
    steps = StepTime(BURST, silent=True)
    steps.end(5)
    assert steps.begin(7) is None
    assert steps.length_ns == 0


def test_a_step_that_took_no_time_at_all() -> None:
    engine = Engine()
    engine.run(0)
    assert engine.steps.reachable(7) == 7


@pytest.mark.parametrize(("rest_ns", "just_ended"), [(0, True), (REST, True), (REST + 1, False)])
def test_no_step_has_just_ended_after_a_rest(rest_ns: int, just_ended: bool) -> None:
    steps = StepTime(BURST, silent=True)
    steps.begin(0)
    steps.end(30 * MS)
    assert steps.begin(30 * MS + rest_ns) == (30 * MS if just_ended else None)


def test_before_the_first_step_and_within_the_burst_every_rate_is_reached() -> None:
    engine = Engine()
    assert engine.steps.length_ns == 0
    assert engine.steps.reachable(100) == 100
    engine.run(BURST)
    assert engine.steps.reachable(100) == 100
