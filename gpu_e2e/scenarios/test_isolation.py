"""An interactive user alone, beside capped floods, and beside one that is not capped.

How near to being alone it can come depends on the flood's limit: a flood of r tokens/s is entitled
to r steps a second or nearly so, and who arrives during one waits for its end.  With the steps of
8 ms that the tiny model takes on two cores, 20 tokens/s is a sixth of the time, 50 nearly half.
"""

from __future__ import annotations

import asyncio
from itertools import chain

import pytest

from conformance.endpoint import record_verdicts as judge
from conformance.endpoint import verdicts as client
from conformance.endpoint.record_measures import stream_gaps
from conformance.endpoint.trace import Ask
from conformance.endpoint.verdict import Verdict, ms, percentile
from gpu_e2e.suite.live import Live, check
from gpu_e2e.suite.play import Client, Play
from gpu_e2e.suite.users import FREE, limited

SHORT = {"ignore_eos": True}
FLOODS = {"20 tok/s": limited("flood-20", 20), "50 tok/s": limited("flood-50", 50)}
OPEN_FLOOD = "flood-without-a-limit"
STREAMS = 32
ROUNDS = 3  # by turns, so that a machine that slows down does so for all alike
QUESTIONS = 8
TOKENS = 25
TIMEOUT_S = 180.0

Span = tuple[int, int]


@pytest.mark.once("gcra")  # others decide as fast; it measures the engine, and takes two minutes
def test_isolation_of_an_interactive_user(live: Live) -> None:
    """Its time to the first token and its gaps, by the engine's clock, as ratios."""

    async def ask_on(driver: Client) -> Span:
        start = driver.clock()
        for n in range(QUESTIONS):
            await driver.one(Ask(FREE, f"question {n} at {start}", TOKENS, f"{n}", extra=SHORT))
            await asyncio.sleep(0.02)
        return start, driver.clock()

    async def beside(driver: Client, user: str) -> Span:
        asks = [Ask(user, f"flood {n}", 3000, f"{user}-{n}", extra=SHORT) for n in range(STREAMS)]
        tasks = [driver.start(ask)[1] for ask in asks]
        await asyncio.sleep(1.0)
        seen = await ask_on(driver)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)
        await live.idle()
        return seen

    async def act(driver: Client) -> dict[str, list[Span]]:
        await ask_on(driver)  # what the first ones pay for is not to be measured
        spans: dict[str, list[Span]] = {name: [] for name in ("alone", *FLOODS)}
        for _ in range(ROUNDS):
            spans["alone"].append(await ask_on(driver))
            for name, flood in FLOODS.items():
                spans[name].append(await beside(driver, flood))
        return spans | {"open": [await beside(driver, OPEN_FLOOD)]}

    played = live.play(act, timeout_s=TIMEOUT_S)
    parts = {
        name: [played.record.within(*s) for s in played.result[name]] for name in played.result
    }
    figures = {name: _measure(played, spans) for name, spans in played.result.items()}
    live.judge(
        played,
        *(_reported(name, figures) for name in figures),
        *(judge.undisturbed(part, FREE) for name in FLOODS for part in parts[name]),
        *(
            judge.unslowed(part, FREE, alone)
            for name in FLOODS
            for part, alone in zip(parts[name], parts["alone"], strict=True)
        ),
        client.completeness(played.of(FREE)),
    )


def _measure(played: Play, spans: list[Span]) -> dict[str, int]:
    """In ns: from the client's request to the dispatch of its first token, and between tokens."""
    asked = [s for s in played.of(FREE) if any(a <= s.started_ns <= b for a, b in spans)]
    ttft = [ds[0].ns - s.started_ns for s in asked if (ds := played.dispatches(s))]
    gaps = [*chain(*(stream_gaps(played.record.within(*span), FREE) for span in spans))]
    return {
        f"{name}_p{per_cent}": percentile(values, per_cent)
        for name, values in (("ttft", ttft), ("gap", gaps))
        for per_cent in (50, 99)
    }


def _reported(name: str, figures: dict[str, dict[str, int]]) -> Verdict:
    mine, alone = figures[name], figures["alone"]
    parts = [
        f"{what} {ms(ns)} ms ({ns / max(1, alone[what]):.2f} times alone)"
        for what, ns in mine.items()
    ]
    beside = {name: f"beside a flood limited to {name}" for name in FLOODS}
    beside |= {"alone": "alone", "open": "beside an open flood"}
    values = {what: ms(ns) for what, ns in mine.items()}
    return check("figure-isolation", True, f"{beside[name]}: {', '.join(parts)}", **values)
