"""Places, active sequences and KV blocks are scarce; throttled users hold them."""

from __future__ import annotations

import asyncio

import pytest

from conformance.endpoint import record_verdicts as judge
from conformance.endpoint import verdicts as client
from conformance.endpoint.promise import SECOND_NS
from conformance.endpoint.trace import Ask, Stream
from conformance.endpoint.verdict import ms
from gpu_e2e.suite.leaving import cancel, departure, verdicts
from gpu_e2e.suite.live import Live, check
from gpu_e2e.suite.play import Client
from gpu_e2e.suite.servers import ACTIVE_CAP, PLACES
from gpu_e2e.suite.users import limited

pytestmark = pytest.mark.flags("tight")

SHORT = {"ignore_eos": True}
FLOOD = limited("tight-flood", 40)
BESIDE = limited("tight-beside", 50)
HOLDER = limited("tight-holder", 20)
QUICK = limited("tight-quick", 1000)
QUEUE = limited("tight-queue", 20)
# Nothing is unlimited here, where a default holds for everybody: one that never gets there.
REFERENCE = limited("tight-reference", 1_000_000)
DEFAULT = 40


def test_flood_beyond_the_active_cap(live: Live) -> None:
    """40 streams for 16 places and 4 active sequences; another user is served at once."""

    async def act(driver: Client) -> Stream:
        asks = [Ask(FLOOD, f"flood {n}", 5, f"flood-{n}", extra=SHORT) for n in range(40)]
        tasks = [driver.start(ask)[1] for ask in asks]
        await asyncio.sleep(1.0)
        beside = await driver.one(Ask(BESIDE, "beside", 120, "beside", extra=SHORT))
        await asyncio.gather(*tasks)
        return beside

    played = live.play(act)
    beside: Stream = played.result
    first = played.dispatches(beside)[0].ns - beside.started_ns
    live.judge(
        played,
        judge.batches(played.record, ACTIVE_CAP),
        check("first", first < SECOND_NS, f"first token of the other user after {ms(first)} ms"),
        judge.rate(played.record, BESIDE, played.promise(BESIDE), min_seconds=2.0),
        judge.evenness(played.record, BESIDE, played.promise(BESIDE)),
        judge.rate(played.record, FLOOD, played.promise(FLOOD), streams=4, min_seconds=4.0),
        client.completeness(played.streams),
    )


def test_kv_pressure_with_preemption(live: Live) -> None:
    """Throttled streams hold all blocks: they give them up, and go on afterwards unharmed."""
    live.need_tiny("a prompt of a known number of tokens")
    held = [Ask(HOLDER, f"{n}{'holds on ' * 11}", 10, f"holder-{n}", extra=SHORT) for n in range(9)]

    async def act(driver: Client) -> tuple[float, float]:
        before = await live.metrics()
        tasks = [driver.start(ask)[1] for ask in held]
        await asyncio.sleep(1.0)
        long = "a prompt of many blocks " * 30
        for n in range(2):
            await driver.one(Ask(QUICK, f"{n}{long}", 40, f"quick-{n}", extra=SHORT))
        await asyncio.gather(*tasks)
        after = await live.idle()
        asks = [Ask(REFERENCE, ask.prompt, 10, ask.name, extra=SHORT) for ask in held]
        for ask in asks:
            await driver.one(ask)
        return before.preemptions, after.preemptions

    played = live.play(act)
    before, after = played.result
    quick = played.of(QUICK)
    firsts = [played.dispatches(s)[0].ns - s.started_ns for s in quick]
    found = [
        check("preempted", after > before, f"{after - before:g} preemptions"),
        check(
            "first",
            max(firsts) < SECOND_NS,
            f"first tokens of the user with quota after {[ms(f) for f in firsts]} ms",
        ),
        client.completeness([*played.of(HOLDER), *quick]),
    ]
    if live.options.same_tokens:
        found.append(client.identical(played.of(HOLDER), played.of(REFERENCE)))
    live.judge(played, *found)


def test_cancelled_while_waiting(live: Live) -> None:
    """Twice as many as there are places; those that never had one leave as well."""

    async def leave(driver: Client) -> list[Stream]:
        asks = [Ask(QUEUE, f"queue {n}", 50, f"queue-{n}", extra=SHORT) for n in range(2 * PLACES)]
        tasks = [driver.start(ask)[1] for ask in asks]
        await asyncio.sleep(1.0)
        return await cancel(tasks)

    played = departure(live, QUEUE, leave)
    never = [s for s in played.result.gone if not played.dispatches(s)]
    message = f"{len(never)} of {len(played.result.gone)} left before they had a turn"
    live.judge(played, *verdicts(played), check("waiting", bool(never), message))


def test_default_for_users_without_a_limit_of_their_own(live: Live) -> None:
    """Each of them has the default for itself."""
    names = ["somebody", "somebody-else"]
    asks = [Ask(user, f"hello {user}", 100, user, extra=SHORT) for user in names]

    played = live.play(lambda driver: driver.run(asks))
    found = [client.completeness(played.streams)]
    for user in names:
        promise = played.promise(user)
        found.append(check("default", promise.rate == DEFAULT, f"{user}: {promise.rate} tok/s"))
        found.append(judge.rate(played.record, user, promise, min_seconds=2.0))
    live.judge(played, *found)
