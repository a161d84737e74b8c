"""The soak: `pytest gpu_e2e/soak --device cpu --backend gcra/async --minutes 5`.

Hundreds of users come and go on one server with few places, few blocks and an active cap; they
leave in every state, send nonsense, and the engine is paused, put to sleep and has its cache reset
meanwhile. Afterwards the house is empty, every token is accounted for, and memory is where it was.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest

from conformance.endpoint import record_verdicts as judge
from conformance.endpoint import verdicts as client
from conformance.endpoint.trace import Ask, Stream
from conformance.endpoint.verdict import Verdict
from gpu_e2e.soak import memory, visits
from gpu_e2e.soak.crowd import DRAIN_S, Crowd
from gpu_e2e.suite import options, users
from gpu_e2e.suite.live import Live, check
from gpu_e2e.suite.metrics import Metrics
from gpu_e2e.suite.play import Client, Play
from gpu_e2e.suite.servers import SOAK_ACTIVE_CAP

SEED = 20
LIMITS = {users.limited(name, rate): float(Fraction(rate)) for name, rate in visits.names().items()}
REFERENCE = "soak-free-0"
# After the time: the last answers, and the same ones again to compare with.
AFTERWARDS_S = DRAIN_S + 180.0
CORE, WORKER = "EngineCore", "Worker"


@pytest.mark.flags("soak")
@pytest.mark.once("gcra", "async")
def test_soak(live: Live, pytestconfig: pytest.Config) -> None:
    """See above; what it saw is printed as its figures."""
    server = live.need_own_server("a soak, which looks at the memory of the server's processes,")
    live.need_tiny("answers of known lengths")
    seconds = 60.0 * options.minutes(pytestconfig)
    crowd = Crowd(seconds, LIMITS, SEED)

    async def act(driver: Client) -> tuple[Metrics, Metrics, list[Stream]]:
        before = await live.idle()
        await crowd.run(driver, lambda: memory.resident(server.process.pid))
        after = await live.idle(within_s=30.0)
        return before, after, await _again(driver, crowd)

    played = live.play(act, timeout_s=seconds + AFTERWARDS_S)
    before, after, reference = played.result
    live.judge(
        played,
        *_figures(crowd, played, before, after),
        check("lives", server.alive() and server.healthy(), "the engine answers"),
        *_everything_happened(crowd, after.preemptions - before.preemptions),
        *_answers(crowd, reference if live.options.same_tokens else None),
        judge.batches(played.record, SOAK_ACTIVE_CAP),
        check(
            "empty",
            after.idle and after.kv_usage <= before.kv_usage,
            f"{after.running:g} running, {after.waiting:g} waiting, KV usage {after.kv_usage:.2%} "
            f"(before: {before.kv_usage:.2%})",
        ),
        *(memory.flat(crowd.memory, name, seconds) for name in _watched(crowd)),
    )


async def _again(driver: Client, crowd: Crowd) -> list[Stream]:
    """Each different greedy request once more, by nearly nobody else."""
    asks: dict[tuple[str, str, int], Ask] = {}
    for visit, _ in crowd.streams:
        ask = visit.ask
        if visit.repeatable:
            asks[ask.door, ask.prompt, ask.max_tokens] = replace(ask, user=REFERENCE)
    found: list[Stream] = []
    todo = list(asks.values())
    for start in range(0, len(todo), 4):
        found += await driver.run(todo[start : start + 4])
    return found


def _answers(crowd: Crowd, reference: list[Stream] | None) -> list[Verdict]:
    """Whoever waited for an answer has the whole of it, and the right one."""
    patient = [(v, s) for v, s in crowd.streams if v.kind not in visits.LEAVING]
    wanted = {s.label: v.tokens for v, s in patient if v.tokens is not None}
    errors = [s for v, s in crowd.streams if v.kind in visits.LEAVING and s.error is not None]
    wrong = [(v.bad, status, text) for v, status, text in crowd.refusals if not 400 <= status < 500]
    calls = [call for call in crowd.calls if call[1] != 200]
    found = [
        client.completeness([s for _, s in patient], wanted),
        check("left", not errors, f"{len(errors)} of those who left saw an error before"),
        check("refused", not wrong, f"{len(crowd.refusals)} bad requests, taken: {wrong[:2]}"),
        check("operated", not calls, f"{len(crowd.calls)} calls of the operator, failed: {calls}"),
        check("in-time", not crowd.unfinished, f"{crowd.unfinished} sessions never ended"),
    ]
    if reference is not None:
        found.append(client.identical([s for v, s in patient if v.repeatable], reference))
    return found


def _everything_happened(crowd: Crowd, preemptions: float) -> list[Verdict]:
    """A soak in which something never came up would prove nothing of it."""
    seen = Counter(v.kind for v, _ in crowd.streams) + Counter(v.kind for v, *_ in crowd.refusals)
    never = [kind for kind in visits.WEIGHTS if not seen[kind]]
    return [
        check("variety", not never and crowd.calls, f"of each kind: {dict(seen)}, never: {never}"),
        check("preempted", preemptions > 0, f"{preemptions:g} preemptions"),
    ]


def _watched(crowd: Crowd) -> list[str]:
    """Its engine core, and its worker if that is a process of its own."""
    worker = any(WORKER in sample for _, sample in crowd.memory)
    return [CORE, WORKER] if worker else [CORE]


def _figures(crowd: Crowd, played: Play, before: Metrics, after: Metrics) -> list[Verdict]:
    record = played.record
    answers = sum(v.kind not in visits.LEAVING for v, _ in crowd.streams)
    gone = sum(s.cancelled for _, s in crowd.streams)
    names = {v.ask.user for v, _ in crowd.streams}
    steps = record.steps()
    lost = sum(sum(whys.values()) for whys in record.lost.values())
    held = crowd.memory[-1][1] if crowd.memory else {}
    rows = {
        "clients": f"{crowd.seconds:.0f} s, {crowd.sessions} sessions of {len(names)} users, at "
        f"most {crowd.most_at_once} requests at once: {answers} answers, {gone} left, "
        f"{len(crowd.refusals)} refused, {len(crowd.calls)} calls of the operator",
        "engine": f"{len(record.dispatches)} tokens in {len(steps)} steps, {lost} of them lost, "
        f"{sum(record.refunds.values())} refunded, {len(record.throttled)} throttled spells, "
        f"{len(record.waits)} waits, {after.preemptions - before.preemptions:g} preemptions",
        "memory": ", ".join(f"{name} {size // memory.MIB} MiB" for name, size in held.items()),
    }
    return [check(f"figure-{name}", True, f"{name}: {text}") for name, text in rows.items()]
