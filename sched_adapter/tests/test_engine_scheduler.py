"""The engine's loop with the project's own scheduler in it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from sched_adapter import config, engine, record
from sched_adapter.scheduler import OutputRateScheduler
from sched_adapter.tests.engine_rig import Rig
from sched_adapter.tests.engine_standins import GatedBackend, make_config

LIMITS = {"snail": Fraction(1, 1000), "steady": Fraction(50)}


@pytest.fixture(params=["sync", "async"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    engine.install()
    vllm_config = make_config(
        tmp_path,
        asynchronous=request.param == "async",
        scheduler_cls=OutputRateScheduler,
        max_num_seqs=16,
    )
    limits = config.OutputRateConfig(rates=LIMITS, record_path=str(tmp_path / "record.jsonl"))
    config.attach(vllm_config, limits)
    rig = Rig(tmp_path, vllm_config).start()
    yield rig
    rig.close()
    assert rig.error is None


def events(rig: Rig, tmp_path: Path, kind: str) -> list[dict[str, Any]]:
    rig.scheduler.books.recorder.flush()
    return [event for event in record.read(tmp_path / "record.jsonl") if event["e"] == kind]


def test_all_throttled_the_loop_rests_and_still_answers(rig: Rig, tmp_path: Path) -> None:
    for i in range(8):
        rig.add(f"snail{i}", user="snail")
    rig.receive_tokens("snail0")
    time.sleep(0.3)
    seen, before = len(rig.executor.seen), len(events(rig, tmp_path, "wait"))
    steps = rig.scheduler.settlement.step.number
    time.sleep(1)
    assert rig.scheduler.settlement.step.number == steps, "a step that could change nothing"
    waits = events(rig, tmp_path, "wait")[before:]
    print(f"{len(waits)} waits in 1 s")
    assert 10 <= len(waits) <= 25
    assert {wait["woke"] for wait in waits} == {"timeout"}
    assert len(rig.executor.seen) == seen

    served_ms = []
    for i in range(5):
        sent_ns = rig.add(f"free{i}", user="free", max_tokens=1)
        served_ms.append((rig.receive_tokens(f"free{i}") - sent_ns) / 1e6)
    print(f"a new unlimited request's token: {[round(ms, 1) for ms in served_ms]} ms")
    assert sorted(served_ms)[2] < 20


def test_somebody_with_quota_who_cannot_run_is_looked_at_again(rig: Rig, tmp_path: Path) -> None:
    """It is not quota that holds it up, so perhaps nobody announces that it could run now."""
    rig.add("snail0", user="snail")
    rig.receive_tokens("snail0")
    backend = rig.engine.structured_output_manager.backend = GatedBackend()
    rig.add("json", user="free", max_tokens=1, grammar="a+")
    rig.until(lambda: "json" in rig.scheduler.requests)
    time.sleep(0.3)
    steps = rig.scheduler.settlement.step.number
    time.sleep(1)
    assert 10 <= rig.scheduler.settlement.step.number - steps <= 25
    backend.gate.set()
    rig.receive_tokens("json")


def test_tokens_come_as_quota_does(rig: Rig, tmp_path: Path) -> None:
    """50 tok/s, burst 0.1 s: six at once, then one in 20 ms, each within some ms of its instant."""
    for i in range(8):
        rig.add(f"steady{i}", user="steady", max_tokens=400)
    rig.receive_tokens("steady0")
    time.sleep(2)
    at_ns = [event["ns"] for event in events(rig, tmp_path, "dispatch")]
    late_ms = [(ns - at_ns[0]) / 1e6 - 20 * max(0, number - 5) for number, ns in enumerate(at_ns)]
    print(f"{len(at_ns)} tokens; the latest came {max(late_ms):.2f} ms after its instant")
    assert len(at_ns) > 80
    assert min(late_ms) >= 0
    assert sorted(late_ms)[len(late_ms) // 2] < 10


def test_each_request_arrives_once_after_it_was_sent_and_before_its_step(
    rig: Rig, tmp_path: Path
) -> None:
    """Also that of a user out of quota, which has no step yet."""
    sent = {name: rig.add(name, user="snail") for name in ("first", "late")}
    sent["free"] = rig.add("free", user="free", max_tokens=1)
    rig.receive_tokens("free")
    arrivals = events(rig, tmp_path, "arrive")
    steps = {event["req"]: event["ns"] for event in events(rig, tmp_path, "dispatch")}
    assert [(event["req"], event["user"]) for event in arrivals] == [
        ("first", "snail"),
        ("late", "snail"),
        ("free", "free"),
    ]
    assert all(event["ns"] >= sent[event["req"]] for event in arrivals)
    assert set(steps) == {"first", "free"}
    assert all(event["ns"] <= steps.get(event["req"], event["ns"]) for event in arrivals)
