"""The wait and the wake-ups, on stock's engine loop and sockets, sync and async."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sched_adapter import engine
from sched_adapter.tests.engine_rig import Rig
from sched_adapter.tests.engine_standins import NEVER_NS, GatedBackend, make_config

# Measured on two busy cores: under 1 ms from an event to what the worker is told. A wait that
# nothing ends would make that 40 ms, since `settle` leaves the engine 10 ms into its wait.
PROMPT_MS = 10.0


@pytest.fixture(scope="module", params=["sync", "async"])
def running(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Rig]:
    engine.install()
    folder = tmp_path_factory.mktemp("engine")
    config = make_config(folder, asynchronous=request.param == "async", max_num_seqs=2)
    rig = Rig(folder, config).start()
    yield rig
    rig.close()


@pytest.fixture
def rig(running: Rig) -> Iterator[Rig]:
    """An engine all of whose users are out of quota."""
    running.scheduler.ready_ns, running.scheduler.grants = NEVER_NS, 1
    running.add("slow")
    running.receive_tokens("slow")
    running.settle()
    yield running
    assert running.error is None
    for req_id in list(running.scheduler.requests):
        running.abort(req_id)
    running.until(lambda: not running.engine.has_work())


def report(what: str, values_ms: list[float]) -> float:
    median = statistics.median(values_ms)
    print(f"{what}: median {median:.2f} ms, longest {max(values_ms):.2f} ms")
    return median


def test_waits_are_bounded_and_do_not_spin_or_bother_the_worker(rig: Rig) -> None:
    loops, waits, seen = rig.scheduler.loops, len(rig.scheduler.waits), len(rig.executor.seen)
    time.sleep(1)
    loops = rig.scheduler.loops - loops
    lengths = [(end - start) / 1e6 for start, end, _ in rig.scheduler.waits[waits:]]
    report(f"{loops} loops in 1 s, waits", lengths)
    assert 10 <= loops <= 30
    assert 45 < statistics.median(lengths) < 500  # 50; a busy host wakes late
    assert {woke for _, _, woke in rig.scheduler.waits[waits:]} == {"timeout"}
    assert len(rig.executor.seen) == seen


def test_waits_until_quota_is_back_and_not_longer(rig: Rig) -> None:
    late_ms, woken = [], set()
    for _ in range(5):
        rig.scheduler.grants = 1
        ready_ns = rig.scheduler.ready_ns = time.monotonic_ns() + 120_000_000
        rig.receive_tokens("slow")
        late_ms.append((rig.executor.seen_ns[-1] - ready_ns) / 1e6)
        woken |= {woke for start_ns, end_ns, woke in rig.scheduler.waits if end_ns > ready_ns}
        rig.settle()
    assert min(late_ms) >= 0
    assert report("ready instant, to the dispatch", late_ms) < PROMPT_MS
    assert "ready" in woken  # now and then the instant falls into stock's own millisecond instead


def test_a_new_request_is_served_at_once(rig: Rig) -> None:
    dispatched, served = [], []
    for i in range(10):
        sent_ns = rig.add(f"new{i}", max_tokens=1)
        served.append((rig.receive_tokens(f"new{i}") - sent_ns) / 1e6)
        told_ns = rig.told_worker_ns(lambda output, i=i: f"new{i}" in output.num_scheduled_tokens)
        dispatched.append((told_ns - sent_ns) / 1e6)
        rig.settle()
    report("new request, to its first token at the front end", served)
    assert report("new request, to its dispatch", dispatched) < PROMPT_MS


def test_an_abort_is_handled_at_once_and_reaches_the_worker(rig: Rig) -> None:
    took = []
    for i in range(10):
        rig.add(f"slow{i}")
        rig.receive_tokens(f"slow{i}")
        rig.settle()
        seen = len(rig.executor.seen)
        sent_ns = rig.abort(f"slow{i}")
        told_ns = rig.told_worker_ns(lambda output, i=i: f"slow{i}" in output.finished_req_ids)
        took.append((told_ns - sent_ns) / 1e6)
        rig.settle()
        # Exactly one message to the worker: the one that lets it forget the request.
        assert [o.finished_req_ids for o in rig.executor.seen[seen:]] == [{f"slow{i}"}]
    assert report("abort, to the worker", took) < PROMPT_MS


def test_a_finished_grammar_is_noticed_at_once(rig: Rig) -> None:
    took = []
    for i in range(5):
        backend = rig.engine.structured_output_manager.backend = GatedBackend()
        rig.add(f"json{i}", max_tokens=1, grammar="a+")
        rig.until(lambda i=i: f"json{i}" in rig.scheduler.requests)
        rig.settle()  # it waits for its grammar, like everybody else for quota
        backend.gate.set()
        took.append((rig.receive_tokens(f"json{i}") - backend.compiled_ns) / 1e6)
        rig.settle()
    assert report("finished grammar, to its first token at the front end", took) < 3 * PROMPT_MS


def test_a_grammar_that_finishes_just_before_the_wait_is_not_missed(rig: Rig) -> None:
    backend = rig.engine.structured_output_manager.backend = GatedBackend()
    rig.add("json", max_tokens=1, grammar="a+")
    rig.until(lambda: "json" in rig.scheduler.requests)
    rig.settle()
    ask = rig.scheduler.output_rate_wait_s
    waits = rig.scheduler.waits

    def finish_first() -> float:  # the scheduler has looked and found the grammar unfinished
        rig.scheduler.output_rate_wait_s = ask
        backend.gate.set()
        rig.until(lambda: not rig.engine.input_queue.empty(), 1)
        waits.clear()
        return ask()

    rig.scheduler.output_rate_wait_s = finish_first
    rig.receive_tokens("json")
    assert waits[0][2] == "request"


def test_a_failed_grammar_is_answered_at_once(rig: Rig) -> None:
    took = []
    for i in range(5):
        backend = rig.engine.structured_output_manager.backend = GatedBackend(error=ValueError)
        rig.add(f"bad{i}", grammar="a+")
        rig.until(lambda i=i: f"bad{i}" in rig.scheduler.requests)
        rig.settle()
        opened_ns = time.monotonic_ns()
        backend.gate.set()
        (output,) = rig.receive().outputs
        assert (output.request_id, str(output.finish_reason)) == (f"bad{i}", "error")
        took.append((time.monotonic_ns() - opened_ns) / 1e6)
        rig.settle()
    assert report("failed grammar, to its error at the front end", took) < 3 * PROMPT_MS


def test_a_seat_freed_by_the_batch_in_flight_is_taken_at_once(rig: Rig) -> None:
    """Async: `schedule()` ran nothing, and then the outstanding batch ended a request."""
    gaps = []
    for i in range(5):
        rig.add(f"first{i}", max_tokens=3)
        rig.add(f"next{i}", max_tokens=1)  # two seats: "slow" has one
        last_ns = rig.receive_tokens(f"first{i}", 3)
        gaps.append((rig.receive_tokens(f"next{i}") - last_ns) / 1e6)
        rig.settle()
    assert report("freed seat, to the next request's token", gaps) < 3 * PROMPT_MS


def test_a_burst_is_taken_from_the_queue_whole_and_in_order(rig: Rig) -> None:
    names = [f"burst{i}" for i in range(20)]
    for name in names:
        rig.add(name, max_tokens=1)
    got = []
    while len(got) < len(names):
        got += [output.request_id for output in rig.receive().outputs]
    assert got == names


def test_pause_and_resume_do_not_wait_for_quota(rig: Rig) -> None:
    answers = []
    for method, args in [("pause_scheduler", ("keep", False)), ("resume_scheduler", ())] * 3:
        sent_ns = rig.call(method, *args)
        message = rig.receive()
        answers.append((time.monotonic_ns() - sent_ns) / 1e6)
        assert message.utility_output.failure_message is None
        if method == "resume_scheduler":
            rig.settle()
    assert report("pause or resume, to its answer", answers) < PROMPT_MS
    rig.scheduler.grants, rig.scheduler.ready_ns = 3, 0
    rig.receive_tokens("slow", 3)
