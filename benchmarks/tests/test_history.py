"""The records of releases and the table made of them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from benchmarks import table
from benchmarks.history import files
from benchmarks.history.__main__ import LINES, follow
from benchmarks.history.parts import PARTS, idle_figures
from benchmarks.isolation.run import SITUATIONS

PRINTED = """
sync: engine 0.9%, worker 0.8% of a core (with nobody there 0.1% and 0.7%); \
20 loops/s, 98% asleep; a new request: sent to dispatched 3.4 ms, to its first token 12.0 ms
.
async: engine 1.2%, worker 0.7% of a core (with nobody there 0.0% and 0.6%); \
21 loops/s, 97% asleep; a new request: sent to dispatched 2.2 ms, to its first token 14.0 ms
.
"""


def test_the_idle_test_s_words_are_understood() -> None:
    found = idle_figures(PRINTED)
    assert found["sync"] == {
        "engine": pytest.approx(0.009),
        "worker": pytest.approx(0.008),
        "engine, empty": pytest.approx(0.001),
        "worker, empty": pytest.approx(0.007),
        "loops per s": 20,
        "new request dispatched, ms": 3.4,
    }
    with pytest.raises(ValueError, match="did not print"):
        idle_figures(PRINTED.partition("async")[0])


def test_the_idle_test_still_prints_these_words() -> None:
    source = (files.ROOT / "gpu_e2e" / "test_idle.py").read_text()
    for words in ("% of a core ", "(with nobody there ", " loops/s, ", "sent to dispatched "):
        assert words.strip("%") in source


def test_files_are_read_as_written_and_sorted_as_releases(tmp_path: Path) -> None:
    for name in ("0.10.0", "0.2.0", "0.9.1"):
        files.write(name, {"memory": {"gcra": {"10": 1.0}}}, tmp_path)
    assert files.releases(tmp_path) == ["0.2.0", "0.9.1", "0.10.0"]
    assert files.read("0.2.0", tmp_path) == {"memory": {"gcra": {"10": 1.0}}}
    assert files.read("1.0.0", tmp_path) == {}


def test_a_way_through_the_figures_may_end_nowhere() -> None:
    assert follow({"a": {"b": 1.5}}, ("a", "b")) == 1.5
    assert follow({"a": {"b": 1.5}}, ("a", "c", "d")) is None


def test_circumstances_name_machine_and_commit() -> None:
    where = files.circumstances()
    assert len(where["commit"]) == 40
    assert where["machine"]
    assert where["cores"] >= 1


def good() -> dict[str, Any]:
    """Figures that meet every target, each just so."""
    steps: dict[str, int] = {}
    for mode in table.MODES:
        for users in (1, 16, 256):
            steps[f"{mode}, 256 resident of {users} users: stock"] = 1000
            steps[f"{mode}, 256 resident of {users} users: adapter"] = 1030
        steps[f"{mode}, 1024 resident, 95 % throttled: stock"] = 1000
        steps[f"{mode}, 1024 resident, 95 % throttled: adapter"] = 1300
        steps[f"{mode}, 10 waiting: adapter"] = 1000
        steps[f"{mode}, 10000 waiting: adapter"] = 1100
    steps["sync, 1024 resident, 51 of them eligible: adapter"] = 1000
    steps["sync, 10240 resident, 51 of them eligible: adapter"] = 1100
    kinds = {"allowed": 1.3, "denied": 1.3, "10,000 users": 1.4}
    spread = {"median": 0.99, "lower": 0.9, "upper": 1.0}
    run = {
        tokens: {"throughput": {**spread}, "more": {"schedule": 0.01}} for tokens in ("128", "16")
    }
    isolation = {
        mode: {name: {key: {"ratio": 1.05} for key in ("first", "gap")} for name in table.BESIDE}
        for mode in table.MODES
    }
    empty = {"engine, empty": 0.0, "worker, empty": 0.019}
    quiet = {"engine": 0.02, "worker": 0.02, "loops per s": 25, **empty}
    return {
        "verbs": {
            "over the floor": kinds,
            "ns": {kind: {"gcra": 100.0} for kind in kinds},
            "peers over gcra": {"x gcra": 15.0, "y gcra": 20.0, "other": 2.0},
        },
        "memory": {"measured": {}, "gcra": {"10000": 110.0}},
        "counts": {"steps": steps},
        "cpu": {"residents": 1.5, "waiting": 1.5},
        "throughput": {mode: copy.deepcopy(run) for mode in table.MODES},
        "isolation": isolation,
        "idle": dict.fromkeys(table.MODES, quiet),
        "pacing": {
            backend: {"10 ms": {"10": {"achieved": 0.999, "most": 0.999}}}
            for backend in ("gcra", "token bucket")
        },
    }


def spoilt(way: tuple[str, ...], value: float) -> dict[str, Any]:
    figures = copy.deepcopy(good())
    at = figures
    for name in way[:-1]:
        at = at[name]
    assert way[-1] in at
    at[way[-1]] = value
    return figures


def test_figures_at_their_targets_are_met() -> None:
    assert good().keys() == table.SECTIONS.keys() == PARTS.keys()
    assert all(row.met for row in table.rows(good()))
    assert "**no**" not in table.table(good())


@pytest.mark.parametrize(
    ("way", "value"),
    [
        (("verbs", "over the floor", "allowed"), 1.31),
        (("verbs", "over the floor", "denied"), 1.31),
        (("verbs", "over the floor", "10,000 users"), 1.41),
        (("verbs", "peers over gcra", "y gcra"), 14.9),
        (("memory", "gcra", "10000"), 111.0),
        (("counts", "steps", "sync, 256 resident of 1 users: adapter"), 1031),
        (("counts", "steps", "async, 256 resident of 16 users: adapter"), 1031),
        (("counts", "steps", "async, 256 resident of 256 users: adapter"), 1031),
        (("counts", "steps", "async, 1024 resident, 95 % throttled: adapter"), 1301),
        (("counts", "steps", "async, 10000 waiting: adapter"), 1101),
        (("counts", "steps", "sync, 10240 resident, 51 of them eligible: adapter"), 1101),
        (("cpu", "residents"), 1.51),
        (("cpu", "waiting"), 1.51),
        (("throughput", "async", "16", "throughput", "median"), 0.989),
        (("isolation", "sync", "parked", "first", "ratio"), 1.051),
        (("isolation", "async", "parked", "gap", "ratio"), 1.051),
        (("isolation", "async", "flood 5", "first", "ratio"), 1.051),
        (("isolation", "sync", "flood 20", "gap", "ratio"), 1.051),
        (("isolation", "async", "flood 50", "first", "ratio"), 1.051),
        (("idle", "async", "engine"), 0.021),
        (("idle", "sync", "worker"), 0.021),
        (("idle", "sync", "loops per s"), 26),
        (("pacing", "gcra", "10 ms", "10", "achieved"), 0.998),
        (("pacing", "token bucket", "10 ms", "10", "most"), 0.998),
    ],
)
def test_each_target_that_is_missed_is_told(way: tuple[str, ...], value: float) -> None:
    missed = [row for row in table.rows(spoilt(way, value)) if not row.met]
    assert len(missed) == 1


def test_what_the_table_shows_of_isolation_is_measured() -> None:
    assert set(table.BESIDE) == {each.name for each in SITUATIONS if each.rates}


def test_a_part_that_was_not_measured_is_named() -> None:
    figures = good()
    del figures["idle"]
    assert "Not measured: idle." in table.table(figures)


def test_what_is_drawn_is_in_the_committed_record() -> None:
    figures = files.read(files.releases()[-1])
    for ways in LINES.values():
        for way in ways:
            if way[0] in figures:
                assert follow(figures, way) is not None, way
