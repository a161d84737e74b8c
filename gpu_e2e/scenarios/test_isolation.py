"""An interactive user alone, beside a capped flood, and beside one that is not capped."""

from __future__ import annotations

import asyncio

from conformance.endpoint import record_verdicts as judge
from conformance.endpoint import verdicts as client
from conformance.endpoint.record_measures import stream_gaps
from conformance.endpoint.trace import Ask
from conformance.endpoint.verdict import Verdict, ms, percentile
from gpu_e2e.suite.live import Live, check
from gpu_e2e.suite.play import Client, Play
from gpu_e2e.suite.users import FREE, limited

SHORT = {"ignore_eos": True}
FLOOD = limited("flood", 50)
OPEN_FLOOD = "flood-without-a-limit"
STREAMS = 32
QUESTIONS = 15
TOKENS = 25
TIMEOUT_S = 180.0


def test_isolation_of_an_interactive_user(live: Live) -> None:
    """Its time to the first token and its gaps, by the engine's clock, as ratios."""

    async def ask_on(driver: Client) -> tuple[int, int]:
        start = driver.clock()
        for n in range(QUESTIONS):
            await driver.one(Ask(FREE, f"question {n} at {start}", TOKENS, f"{n}", extra=SHORT))
            await asyncio.sleep(0.02)
        return start, driver.clock()

    async def beside(driver: Client, user: str) -> tuple[int, int]:
        asks = [Ask(user, f"flood {n}", 3000, f"{user}-{n}", extra=SHORT) for n in range(STREAMS)]
        tasks = [driver.start(ask)[1] for ask in asks]
        await asyncio.sleep(1.0)
        seen = await ask_on(driver)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)
        return seen

    async def act(driver: Client) -> dict[str, tuple[int, int]]:
        await ask_on(driver)  # what the first ones pay for is not to be measured
        alone = await ask_on(driver)
        capped = await beside(driver, FLOOD)
        await live.idle()
        return {"alone": alone, "capped": capped, "open": await beside(driver, OPEN_FLOOD)}

    played = live.play(act, timeout_s=TIMEOUT_S)
    parts = {name: played.record.within(*span) for name, span in played.result.items()}
    figures = {name: _measure(played, *span) for name, span in played.result.items()}
    live.judge(
        played,
        *(_reported(name, figures) for name in figures),
        judge.undisturbed(parts["capped"], FREE),
        judge.unslowed(parts["capped"], FREE, parts["alone"]),
        client.completeness(played.of(FREE)),
    )


def _measure(played: Play, start: int, end: int) -> dict[str, int]:
    """In ns: from the client's request to the dispatch of its first token, and between tokens."""
    asked = [s for s in played.of(FREE) if start <= s.started_ns <= end]
    ttft = [ds[0].ns - s.started_ns for s in asked if (ds := played.dispatches(s))]
    gaps = stream_gaps(played.record.within(start, end), FREE)
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
    beside = {"alone": "alone", "capped": "beside a capped flood", "open": "beside an open flood"}
    values = {what: ms(ns) for what, ns in mine.items()}
    return check("figure-isolation", True, f"{beside[name]}: {', '.join(parts)}", **values)
