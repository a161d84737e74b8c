"""Steps longer than the burst: the word in the log, the figure, and the automatic burst."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from conformance.contract import Contract
from conformance.contracts import GCRA, GCRA_AUTO, TOKEN_BUCKET, TOKEN_BUCKET_AUTO
from conformance.engine import ScriptedEngine
from sched_adapter.tests.pressure.house import (
    BURST_NS,
    MS,
    SECOND,
    check_books,
    check_bounds,
    house,
)

HOUR = 3600 * SECOND

EVEN = pytest.mark.parametrize("plain", [GCRA, TOKEN_BUCKET], ids=lambda backend: backend.name)
AUTO = pytest.mark.parametrize(
    "auto", [GCRA_AUTO, TOKEN_BUCKET_AUTO], ids=lambda backend: backend.name
)


def slow_house(depth: int, backend: Contract, streams: int = 3, rate: int = 10) -> ScriptedEngine:
    engine = house(
        depth, backend, rates={"slow": rate}, max_model_len=4096, num_blocks=4096, check_kv=False
    )
    for i in range(streams):
        engine.add(f"s{i}", user="slow", prompt=3, max_tokens=4000, ignore_eos=True)
    return engine


def pace(engine: ScriptedEngine, seconds: int, step_ns: int) -> float:
    """Tokens/s over the next `seconds`."""
    before, at = len(engine.history.dispatches("slow")), engine.clock()
    engine.run_for(seconds * SECOND, step_ns)
    elapsed_s = (engine.clock() - at) / SECOND
    return (len(engine.history.dispatches("slow")) - before) / elapsed_s


@EVEN
def test_slowness_is_told_once_with_the_step_and_what_can_be_reached(
    depth: int, plain: Contract, log_lines: list[str]
) -> None:
    engine = slow_house(depth, plain)
    reached = pace(engine, 60, 250 * MS)
    assert 7.9 <= reached <= 8.1
    (line,) = log_lines
    assert "250 ms" in line
    assert "8.0 of 10" in line
    assert "--output-rate-burst-ms" in line
    steps = engine.scheduler.step_time
    assert steps.length_ns == 250 * MS
    assert steps.reachable(10) == 8
    check_bounds(engine, plain)


def test_nothing_is_told_of_waits_pauses_and_quick_steps(
    depth: int, backend: Contract, log_lines: list[str]
) -> None:
    engine = slow_house(depth, backend, streams=1)
    for n in range(60):
        engine.step(20 * MS)
        if n % 3 == 0:
            engine.pause()
            engine.step(5 * SECOND)
            engine.resume()
    assert not log_lines


@AUTO
@pytest.mark.parametrize(
    ("step_ms", "streams", "rate", "least", "plain"),
    [(250, 3, 10, 9.9, 8.0), (150, 16, 100, 99.0, 73.4), (1000, 24, 20, 19.8, 3.1)],
)
def test_the_automatic_burst_reaches_the_rate(
    depth: int,
    auto: Contract,
    step_ms: int,
    streams: int,
    rate: int,
    least: float,
    plain: float,
    log_lines: list[str],
) -> None:
    def engine(backend: Contract) -> ScriptedEngine:
        made = house(
            depth,
            backend,
            rates={"slow": rate},
            max_model_len=4096,
            num_blocks=8192,
            max_num_seqs=32,
            check_kv=False,
        )
        for i in range(streams):
            made.add(f"s{i}", user="slow", prompt=3, max_tokens=4000, ignore_eos=True)
        return made

    automatic = engine(auto)
    automatic.run(4, step_ms * MS)
    reached = pace(automatic, 60, step_ms * MS)
    assert least <= reached <= rate + 0.5
    assert not log_lines, "nothing is lost, so nothing is said"
    fixed = GCRA if auto is GCRA_AUTO else TOKEN_BUCKET
    assert pace(engine(fixed), 60, step_ms * MS) <= plain + 0.1
    print(f"{reached:.2f} of {rate} tok/s with steps of {step_ms} ms")
    check_books(automatic)


def check_auto_bound(engine: ScriptedEngine, rate: int, ended: dict[int, int]) -> None:
    """A closed window of W holds at most (W + max(burst, s)) * rate + 1 tokens.

    s is the length of the step that had just ended at the window's first token, if one that ran a
    batch had; `ended` maps such instants to it, in ns.
    """
    at = engine.history.dispatches("slow")
    instants = np.asarray(at, dtype=np.int64)
    longer = 0
    for first, instant in enumerate(at):
        if first and at[first - 1] == instant:
            continue  # a window that begins here holds all of this instant
        widths = instants[first:] - instant
        counts = np.arange(1, len(at) - first + 1)
        bounds = (widths + max(BURST_NS, ended.get(instant, 0))) * rate // SECOND + 1
        longer += int((counts > (widths + BURST_NS) * rate // SECOND + 1).any())
        worst = int((counts - bounds).argmax())
        assert counts[worst] <= bounds[worst], (
            f"{counts[worst]} tokens in {widths[worst] / MS:.0f} ms after a step of "
            f"{ended.get(instant, 0) / MS:.0f} ms: at most {bounds[worst]}"
        )
    assert longer, "the test wants windows beyond the plain bound"


@AUTO
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rate", [3, 10, 40])
def test_the_bound_of_the_automatic_burst(depth: int, auto: Contract, seed: int, rate: int) -> None:
    """Steps of all lengths, pauses, idle times.

    Sync, the step that ended is the one before. Async, the batch whose output came since the
    schedule() before was dispatched one earlier still; what ended is the time from that
    schedule() to the output: the time between two batches, not a batch's whole time in flight.
    """
    engine = slow_house(depth, auto, streams=4, rate=rate)
    came = _outputs_of_batches(engine)
    draw = random.Random(seed)
    ended: dict[int, int] = {}
    began = None
    for serial in range(500):
        live = sum(not log.finished for log in engine.requests.values())
        if live < 8 and draw.random() < 0.3:
            engine.add(f"r{serial}", user="slow", prompt=draw.randrange(1, 9), max_tokens=15)
        now = engine.clock()
        if began is not None and came and now - came[-1] <= 100 * MS:
            ended[now] = came[-1] - began
        began = now
        came.clear()
        engine.step(draw.choice([1, 10, 60, 250, 250, 250, 900, 3000]) * MS)
        if draw.random() < 0.05:
            engine.pause()
            engine.step(MS)  # what is in flight comes back before the pause, not after it
            engine.step(draw.choice([100, 4000]) * MS)
            engine.resume()
        if draw.random() < 0.1:
            engine.clock.advance(draw.choice([30, 700, 20_000]) * MS)
    assert any(length > 0 for length in ended.values())
    check_auto_bound(engine, rate, ended)
    check_books(engine)


def _outputs_of_batches(engine: ScriptedEngine) -> list[int]:
    """Grows by the instant, in ns, at which the output of a batch that ran came back."""
    came: list[int] = []
    update = engine.scheduler.update_from_output

    def noted(scheduled: Any, output: Any) -> Any:
        if scheduled.total_num_scheduled_tokens:
            came.append(engine.clock())
        return update(scheduled, output)

    engine.scheduler.update_from_output = noted
    return came


@AUTO
def test_after_a_rest_there_is_no_more_than_the_burst(auto: Contract) -> None:
    """A step of 3 s, a minute with nothing to do, then ten requests at once."""
    engine = slow_house(1, auto, streams=0, rate=40)
    engine.add("first", user="slow", prompt=3, max_tokens=1)
    engine.step(3 * SECOND)
    engine.step(60 * SECOND)
    for i in range(8):
        engine.add(f"late{i}", user="slow", prompt=3, max_tokens=9, ignore_eos=True)
    assert len(engine.step(3 * SECOND).sampled) == 5


def test_a_clock_that_jumps_makes_one_step_of_ten_seconds_at_most(depth: int) -> None:
    engine = slow_house(depth, GCRA_AUTO, streams=8, rate=10)
    engine.run(50)
    before = len(engine.history.dispatches("slow"))
    engine.step(HOUR)
    at = engine.clock()
    while engine.clock() < at + SECOND:
        engine.step()
    got = len(engine.history.dispatches("slow")) - before
    assert got <= (10 + 1) * 10 + 8 + 1
