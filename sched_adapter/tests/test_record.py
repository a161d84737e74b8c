"""The engine's record on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from sched_adapter.record import Recorder, read


def test_what_was_noted_is_read_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    recorder = Recorder(path, {"limiter": "gcra"})
    recorder.event("dispatch", 7, user="ü", req="r", charged=True)
    recorder.event("wait", 8, end_ns=9, woke="ready")
    recorder.close()
    meta, first, second = read(path)
    assert (meta["e"], meta["format"], meta["limiter"]) == ("meta", 1, "gcra")
    assert first == {"e": "dispatch", "ns": 7, "user": "ü", "req": "r", "charged": True}
    assert second == {"e": "wait", "ns": 8, "end_ns": 9, "woke": "ready"}


def test_a_full_record_says_so_once_and_stops(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    recorder = Recorder(path, {}, max_events=2)
    for ns in range(5):
        recorder.event("output", ns, user="a", req="r", n=1)
    recorder.close()
    assert [event["e"] for event in read(path)] == ["meta", "output", "output", "truncated"]


def test_a_line_cut_off_by_a_killed_engine_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    Recorder(path, {}).close()
    with path.open("a") as file:
        file.write('{"e":"outp')
    assert [event["e"] for event in read(path)] == ["meta"]


@pytest.mark.parametrize("text", ["", '{"e":"output"}\n', '{"e":"meta","format":99}\n'])
def test_what_is_no_record_is_refused_in_a_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"record\.jsonl.*record"):
        read(path)


def test_a_disk_that_fails_costs_the_record_and_nothing_else(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "missing" / "record.jsonl", {})
    recorder.event("output", 1, user="a", req="r", n=1)
    recorder.close()
    assert isinstance(recorder.error, OSError)
