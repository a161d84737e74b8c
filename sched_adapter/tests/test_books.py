"""The engine's record as the bookkeeping writes it, with stand-ins for vLLM's outputs."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sched_adapter.books import Books
from sched_adapter.record import Recorder, read


def request(name: str, user: str) -> Any:
    line = SimpleNamespace(user=SimpleNamespace(name=user, limited=True))
    status = SimpleNamespace(name="FINISHED_STOPPED")
    return SimpleNamespace(request_id=name, output_rate_line=line, status=status)


def test_the_last_token_of_a_request_counts_before_its_end_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    books = Books(Recorder(path, {}))
    ends = request("r", "a")
    books.join("r", "a")
    # One step in flight, as in a synchronous engine: its output is the request's last token.
    step: Any = SimpleNamespace(num_scheduled_tokens={"r": 1})
    books.dispatch(1, step, set(), Counter({"a": 1}), {"r": ends})
    books.deliver(step)
    books.finish(ends)
    given = SimpleNamespace(request_id="r", new_token_ids=[7])
    books.delivered({0: SimpleNamespace(outputs=[given])})
    books.close()
    *_, output, finish = read(path)
    assert (output["e"], output["user"], output["n"]) == ("output", "a", 1)
    assert (finish["e"], finish["user"], finish["tokens"]) == ("finish", "a", 1)


def test_an_end_without_anything_in_flight_is_noted_at_once(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    books = Books(Recorder(path, {}))
    books.join("r", "a")
    books.finish(request("r", "a"))
    assert read(path)[-1]["e"] == "finish"
    books.close()


def test_an_arrival_is_noted_when_it_is_told_and_not_when_the_next_step_begins(
    tmp_path: Path,
) -> None:
    path = tmp_path / "record.jsonl"
    books = Books(Recorder(path, {}))
    books.now_ns = 5  # the last step's instant, long ago
    before_ns = time.monotonic_ns()
    books.join("r", "a")
    after_ns = time.monotonic_ns()
    books.close()
    *_, arrive = read(path)
    assert arrive == {"e": "arrive", "ns": arrive["ns"], "user": "a", "req": "r"}
    assert before_ns <= arrive["ns"] <= after_ns


def test_without_a_recorder_an_arrival_does_not_even_look_at_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sched_adapter.books.time", None)
    Books().join("r", "a")
