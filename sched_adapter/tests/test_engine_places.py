"""What the engine's wrapper leaves alone, what it lets through, and the engines without a queue."""

from __future__ import annotations

import dataclasses
import queue
import statistics
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine.core import EngineCore, EngineCoreProc
from vllm.v1.engine.core_client import InprocClient
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT

from sched_adapter import engine
from sched_adapter.tests.engine_standins import (
    NEVER_NS,
    ScriptedExecutor,
    make_config,
    make_request,
)

PLACES = [
    (EngineCoreProc, "_process_engine_step"),
    (InprocClient, "get_output"),
    (EngineCore, "preprocess_add_request"),
]


@pytest.fixture(autouse=True)
def installed() -> None:
    engine.install()


def test_install_wraps_once() -> None:
    before = [getattr(owner, name) for owner, name in PLACES]
    engine.install()
    assert [getattr(owner, name) for owner, name in PLACES] == before
    assert not any(hasattr(method.__wrapped__, "__wrapped__") for method in before)


def test_install_changes_nothing_if_a_method_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name in PLACES:
        monkeypatch.setattr(owner, name, getattr(owner, name).__wrapped__)
    monkeypatch.delattr(EngineCore, "preprocess_add_request")
    with pytest.raises(AttributeError, match="preprocess_add_request"):
        engine.install()
    assert not hasattr(EngineCoreProc._process_engine_step, "__wrapped__")


# The filter for empty steps


class Recorder:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def execute_model(self, output: Any, non_block: bool = False) -> str:
        self.seen.append((output, non_block))
        return "executed"


def filtered(executor: Any) -> Any:
    assert engine._is_ours(SimpleNamespace(scheduler=OurScheduler(), model_executor=executor))
    return executor.execute_model


class OurScheduler:
    wait_s = 0.01

    def output_rate_wait_s(self) -> float:
        return self.wait_s

    def has_requests(self) -> bool:
        return True


def test_an_empty_step_is_answered_as_the_worker_would() -> None:
    executor = Recorder()
    execute = filtered(executor)
    assert execute(SchedulerOutput.make_empty()) is EMPTY_MODEL_RUNNER_OUTPUT
    assert execute(SchedulerOutput.make_empty(), non_block=True).result(0) == (
        EMPTY_MODEL_RUNNER_OUTPUT
    )
    assert executor.seen == []
    assert filtered(executor) == execute  # put there once


TRUTHY = {int: 1, bool: True, dict: {"r": [0]}, set: {"r"}, list: ["r"]}


@pytest.mark.parametrize(
    "field", [f.name for f in dataclasses.fields(SchedulerOutput)] + ["a_later_field"]
)
def test_whatever_an_output_carries_reaches_the_worker(field: str) -> None:
    output = SchedulerOutput.make_empty()
    value = TRUTHY.get(type(getattr(output, field, None)), object())
    if field == "scheduled_cached_reqs":  # its content comes with tokens, always
        field, value = "total_num_scheduled_tokens", 3
    setattr(output, field, value)
    executor = Recorder()
    assert filtered(executor)(output, non_block=True) == "executed"
    assert executor.seen == [(output, True)]


# The wait itself


def test_the_wait_takes_nothing_and_ends_for_anything_in_the_queue() -> None:
    inbox: queue.Queue[Any] = queue.Queue()
    start = time.monotonic()
    assert engine._wait_for_input(inbox, 0.02) is False
    assert time.monotonic() - start >= 0.02
    inbox.put("first")
    inbox.put("second")
    assert engine._wait_for_input(inbox, 10) is True
    assert [inbox.get_nowait(), inbox.get_nowait()] == ["first", "second"]


def test_the_wait_goes_on_after_a_wake_up_without_cause() -> None:
    inbox: queue.Queue[Any] = queue.Queue()
    stop = threading.Event()

    def disturb() -> None:
        while not stop.wait(0.001):
            with inbox.not_empty:
                inbox.not_empty.notify_all()

    thread = threading.Thread(target=disturb)
    thread.start()
    start = time.monotonic()
    assert engine._wait_for_input(inbox, 0.05) is False
    took = time.monotonic() - start
    stop.set()
    thread.join()
    assert 0.05 <= took < 0.5


def fake_engine(*in_flight: int) -> Any:
    batches = [(None, SimpleNamespace(total_num_scheduled_tokens=n), None) for n in in_flight]
    return SimpleNamespace(
        scheduler=OurScheduler(),
        model_executor=Recorder(),
        input_queue=queue.Queue(),
        batch_queue=batches,
    )


def waited(fake: Any, executed: bool = False) -> bool:
    notes: list[Any] = []
    fake.scheduler.note_wait = lambda *note: notes.append(note)
    assert engine._step_then_wait(lambda _self: executed, fake) is executed
    return bool(notes)


def test_waits_only_after_an_empty_step_with_nothing_in_flight() -> None:
    assert waited(fake_engine())
    assert waited(fake_engine(0))  # async keeps an empty batch in its queue
    assert not waited(fake_engine(), executed=True)
    assert not waited(fake_engine(3))
    assert not waited(fake_engine(0, 3))
    assert not waited(fake_engine(3, 0))


def test_waits_only_when_asked_and_with_somebody_there() -> None:
    fake = fake_engine()
    fake.scheduler.wait_s = 0.0
    assert not waited(fake)
    fake = fake_engine()
    fake.scheduler.has_requests = lambda: False  # paused: "keep" answers when the loop is idle
    assert not waited(fake)


def test_a_scheduler_that_asks_for_more_gets_50_ms() -> None:
    fake = fake_engine()
    fake.scheduler.wait_s = 5.0
    start = time.monotonic()
    assert waited(fake)
    assert 0.05 <= time.monotonic() - start < 0.5


def test_where_only_quota_is_awaited_it_waits_on_until_there_is_some() -> None:
    fake = fake_engine()
    fake.scheduler.only_quota_is_awaited = True
    asked = iter([5.0, 5.0, 0.01, 0.0])
    fake.scheduler.output_rate_wait_s = lambda: next(asked)
    notes: list[Any] = []
    fake.scheduler.note_wait = lambda *note: notes.append(note)
    assert engine._step_then_wait(lambda _self: False, fake) is False
    assert [woke for _, _, woke in notes] == ["timeout", "timeout", "ready"]


@pytest.mark.parametrize("put_after", [0, 1])
def test_where_only_quota_is_awaited_a_message_ends_it(put_after: int) -> None:
    fake = fake_engine()
    fake.scheduler.only_quota_is_awaited = True
    fake.scheduler.wait_s = 5.0
    notes: list[str] = []

    def note(start_ns: int, end_ns: int, woke: str) -> None:
        notes.append(woke)
        if len(notes) == put_after:
            fake.input_queue.put("a request")

    fake.scheduler.note_wait = note
    if not put_after:
        fake.input_queue.put("a request")
    assert engine._step_then_wait(lambda _self: False, fake) is False
    assert notes == ["timeout"] * put_after + ["request"]


def test_in_the_callers_process_it_goes_back_to_the_caller() -> None:
    fake = fake_engine()
    fake.scheduler.only_quota_is_awaited = True
    fake.scheduler.wait_s = 5.0
    client = SimpleNamespace(engine_core=fake)
    result = SimpleNamespace(outputs=[])
    start = time.monotonic()
    assert engine._output_then_sleep(lambda _client: result, client) is result
    assert 0.05 <= time.monotonic() - start < 0.5


# Engines in the caller's process


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_in_process_it_sleeps_after_an_empty_step(tmp_path: Path, asynchronous: bool) -> None:
    config = make_config(tmp_path, asynchronous=asynchronous)
    client = InprocClient(config, ScriptedExecutor, log_stats=False)
    scheduler = client.engine_core.scheduler
    executor = client.engine_core.model_executor
    client.add_request(make_request("slow"))
    tokens: list[int] = []

    def turn(seconds: float) -> int:
        """Calls of get_output in that time, as LLM.generate makes them."""
        calls, end = 0, time.monotonic() + seconds
        while not calls or time.monotonic() < end:
            tokens.extend(t for o in client.get_output().outputs for t in o.new_token_ids)
            calls += 1
        return calls

    turn(0.2)
    seen = len(executor.seen)
    calls = turn(1)
    print(f"{calls} calls in 1 s")
    assert 10 <= calls <= 30
    assert (len(tokens), len(executor.seen)) == (1, seen)

    late, took = [], []
    for _ in range(5):
        scheduler.grants, had = 1, len(tokens)
        ready_ns = scheduler.ready_ns = time.monotonic_ns() + 70_000_000
        while len(tokens) == had:
            start = time.monotonic()
            turn(0)  # one call
        # Answers are handed out before any sleep: the user is out of quota again by then.
        assert scheduler.ready_ns == NEVER_NS
        took.append((time.monotonic() - start) * 1e3)
        late.append((executor.seen_ns[-1] - ready_ns) / 1e6)
    print(f"dispatched {late} ms after the ready instant, handed out {took} ms after the call")
    assert min(late) >= 0
    assert statistics.median(late) < 10
    assert statistics.median(took) < 25  # 2 ms a step; with a sleep 50
    assert {woke for _, _, woke in scheduler.waits} == {"ready", "timeout"}
    client.shutdown()


@pytest.mark.parametrize("stock", [Scheduler, AsyncScheduler])
def test_an_engine_with_a_stock_scheduler_runs_as_stock(tmp_path: Path, stock: Any) -> None:
    config = make_config(tmp_path, asynchronous=stock is AsyncScheduler, scheduler_cls=stock)
    client = InprocClient(config, ScriptedExecutor, log_stats=False)
    client.add_request(make_request("r", max_tokens=5))
    tokens = 0
    while client.engine_core.scheduler.has_requests() or client.engine_core.batch_queue:
        tokens += sum(len(o.new_token_ids) for o in client.get_output().outputs)
    assert tokens == 5
    executor = client.engine_core.model_executor
    assert "execute_model" not in vars(executor)
    executor.execute_model(SchedulerOutput.make_empty(), non_block=True).result(5)
    assert executor.seen[-1] == SchedulerOutput.make_empty()  # nothing is kept from its worker
    client.shutdown()
