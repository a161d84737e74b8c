"""An interactive user alone, beside capped floods, beside parked users, and beside an open flood.

How near to being alone it can come depends on the flood's limit: a flood of r tokens/s is entitled
to r steps a second or nearly so, and who arrives during one waits for its end.  With the steps of
8 ms that the tiny model takes on two cores, 20 tokens/s is a sixth of the time, 50 nearly half.
Users who are parked and have no quota take no step, so beside them nothing but the engine's own
part may differ.
"""

from __future__ import annotations

import asyncio
from itertools import chain

import pytest

from conformance.endpoint import record_verdicts as judge
from conformance.endpoint import verdicts as client
from conformance.endpoint.first_token import first_token, held, steps_of_others, undelayed
from conformance.endpoint.record_measures import stream_gaps
from conformance.endpoint.trace import Ask
from conformance.endpoint.verdict import Verdict, percentile
from gpu_e2e.suite.live import Live, check
from gpu_e2e.suite.play import Client, Play
from gpu_e2e.suite.users import FREE, limited

SHORT = {"ignore_eos": True}
FLOODS = {"20 tok/s": limited("flood-20", 20), "50 tok/s": limited("flood-50", 50)}
OPEN_FLOOD = "flood-without-a-limit"
STREAMS = 32
ROUNDS = 3  # by turns, so that a machine that slows down does so for all alike
# One stream each: it gets the token of its full quota, and with that its place, and then none for
# longer than the whole scenario takes. Others in each round, since nobody's quota is full again.
PARKED = [
    [limited(f"parked-{each}-{n}", "1/400") for n in range(STREAMS)] for each in range(ROUNDS)
]
QUESTIONS = 8
TOKENS = 15
TIMEOUT_S = 240.0
# Beside the parked 1.05 is what is wanted at p50; ten times that slack is what a test may assert.
MOST_PARKED = 1.5
# From the scheduler's getting a request to the step that serves it, in ns: 0.1 to 0.2 ms at p50,
# however busy the machine.
MOST_QUEUED_NS = 2_000_000

Span = tuple[int, int]
Figures = dict[str, int]


@pytest.mark.once("gcra")  # others decide as fast; it measures the engine, and takes two minutes
def test_isolation_of_an_interactive_user(live: Live) -> None:
    """Its time to the first token, part by part, and its gaps, as ratios."""

    async def ask_on(driver: Client) -> Span:
        start = driver.clock()
        for n in range(QUESTIONS):
            await driver.one(Ask(FREE, f"question {n} at {start}", TOKENS, f"{n}", extra=SHORT))
            await asyncio.sleep(0.02)
        return start, driver.clock()

    async def beside(driver: Client, users: list[str]) -> Span:
        asks = [
            Ask(users[n % len(users)], f"flood {n}", 3000, f"{users[0]}-{n}", extra=SHORT)
            for n in range(STREAMS)
        ]
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
        spans: dict[str, list[Span]] = {name: [] for name in ("alone", "parked", *FLOODS)}
        for each in range(ROUNDS):
            spans["alone"].append(await ask_on(driver))
            spans["parked"].append(await beside(driver, PARKED[each]))
            for name, flood in FLOODS.items():
                spans[name].append(await beside(driver, [flood]))
        return spans | {"open": [await beside(driver, [OPEN_FLOOD])]}

    played = live.play(act, timeout_s=TIMEOUT_S)
    parts = {
        name: [played.record.within(*s) for s in played.result[name]] for name in played.result
    }
    figures = {name: _measure(played, spans) for name, spans in played.result.items()}
    live.judge(
        played,
        *chain(*(_reported(name, figures) for name in figures)),
        _parked(played, figures),
        *(_queued(name, figures[name]) for name in ("alone", "parked", *FLOODS)),
        *(judge.undisturbed(part, FREE) for name in FLOODS for part in parts[name]),
        *(
            judge.unslowed(part, FREE, alone)
            for name in ("parked", *FLOODS)
            for part, alone in zip(parts[name], parts["alone"], strict=True)
        ),
        client.completeness(played.of(FREE)),
    )


def _measure(played: Play, spans: list[Span]) -> Figures:
    """The interactive user's figures, in ns and counts.

    `ttft` is from the client's request to the dispatch of its first token, `first` to the client's
    reading it; the four parts add up to `first` request by request, their medians only nearly.
    `undelayed` are those during which no step served anybody else (rather the quick ones: a long
    way meets more steps), `held` those that waited for the end of such a step before the scheduler
    got them.
    """
    asked = [s for s in played.of(FREE) if any(a <= s.started_ns <= b for a, b in spans)]
    ways = [way for s in asked if (way := first_token(played.record, s))]
    steps = steps_of_others(played.record, FREE)
    (free, met), (waited, unheld) = undelayed(ways, steps), held(ways, steps)
    found = {
        "ttft": [way.dispatched_ns - way.sent_ns for way in ways],
        "gap": [*chain(*(stream_gaps(played.record.within(*span), FREE) for span in spans))],
        "first": [way.read_ns - way.sent_ns for way in ways],
        "undelayed": [way.read_ns - way.sent_ns for way in free],
        "held_in": [way.parts()["in"] for way in waited],
        "unheld_in": [way.parts()["in"] for way in unheld],
    }
    for part in ("in", "queue", "step", "out"):
        found[part] = [way.parts()[part] for way in ways]
        found[f"undelayed_{part}"] = [way.parts()[part] for way in free]
    figures = {f"{what}_p50": percentile(values, 50) for what, values in found.items()}
    figures |= {f"{what}_p99": percentile(found[what], 99) for what in ("ttft", "gap", "first")}
    return figures | {"asked": len(asked), "whole": len(ways), "met": len(met), "held": len(waited)}


BESIDE = {name: f"beside a flood limited to {name}" for name in FLOODS}
BESIDE |= {
    "alone": "alone",
    "parked": f"beside {STREAMS} parked users",
    "open": "beside an open flood",
}


def _reported(name: str, figures: dict[str, Figures]) -> list[Verdict]:
    mine = figures[name]
    told = ("ttft_p50", "ttft_p99", "gap_p50", "gap_p99")
    way = ("in_p50", "queue_p50", "step_p50", "out_p50", "first_p50")
    found = [
        _figure("figure-isolation", name, figures, told),
        _figure("figure-first-token", name, figures, way),
    ]
    asked, waited, met = mine["whole"], mine["held"], mine["met"]
    if asked > waited > 0:
        more = f"{waited} of {asked} were held by a step of others, and of the rest "
        found.append(_figure("figure-held", name, figures, ("unheld_in_p50",), more))
    if met and asked > met:
        calm = tuple(f"undelayed{part}_p50" for part in ("_in", "_queue", "_step", "_out", ""))
        more = f"{asked - met} of {asked} met no step of others at all: "
        found.append(_figure("figure-undelayed", name, figures, calm, more))
    return found


def _figure(
    rule: str, name: str, figures: dict[str, Figures], which: tuple[str, ...], more: str = ""
) -> Verdict:
    mine, alone = figures[name], figures["alone"]
    ratios = {what: mine[what] / max(1, alone[what]) for what in which}
    values = {f"{what}_ms": round(mine[what] / 1e6, 2) for what in which}
    told = ", ".join(
        f"{what} {mine[what] / 1e6:.2f} ms ({ratios[what]:.2f} times alone)" for what in which
    )
    shown = {f"{what}_ratio": round(ratio, 3) for what, ratio in ratios.items()}
    counts = {what: mine[what] for what in ("whole", "met", "held")}
    return check(rule, True, f"{BESIDE[name]}: {more}{told}", **values, **shown, **counts)


def _queued(name: str, mine: Figures) -> Verdict:
    """Once the scheduler has the request, the next step serves it, whoever else is there."""
    queued = mine["queue_p50"]
    message = (
        f"{BESIDE[name]}: {queued / 1e6:.2f} ms from arrival to dispatch at p50 "
        f"({MOST_QUEUED_NS / 1e6:g} promised)"
    )
    ok = mine["whole"] == mine["asked"] > 0 and queued <= MOST_QUEUED_NS
    return check("queued", ok, message, queue_p50_ms=round(queued / 1e6, 2))


def _parked(played: Play, figures: dict[str, Figures]) -> Verdict:
    """Beside users who take no step it is as if they were not there."""
    spans = played.result["parked"]
    others = sum(d.user != FREE for span in spans for d in played.record.within(*span).dispatches)
    seated = sum(d.user.startswith("parked-") for d in played.record.dispatches)
    mine, alone = figures["parked"], figures["alone"]
    ratios = {what: mine[f"{what}_p50"] / max(1, alone[f"{what}_p50"]) for what in ("first", "gap")}
    whole = all(f["whole"] == f["asked"] > 0 for f in (mine, alone))
    ok = whole and not others and seated == ROUNDS * STREAMS and max(ratios.values()) <= MOST_PARKED
    message = (
        f"beside {seated} parked streams in {ROUNDS} rounds, with {others} tokens of theirs "
        f"meanwhile: first token {ratios['first']:.2f}, gap {ratios['gap']:.2f} times alone at p50 "
        f"(at most {MOST_PARKED:g} promised)"
    )
    rounded = {f"{what}_ratio": round(ratio, 3) for what, ratio in ratios.items()}
    return check("parked", ok, message, others=others, seated=seated, **rounded)
