"""The one line that somebody reads whose limits make no whole: the part, the value, the mend."""

from __future__ import annotations

from pathlib import Path

import pytest

from limiters import Gcra
from sched_adapter import assembly
from sched_adapter.flags import FLAGS
from sched_adapter.tests.lines import line

NAME = "give a string of 1 to 256 printable characters"
PARTS = "default_rate, rates, limiter, burst_ms, window_ms, record, on_fault, options"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (5, f"5 is not a mapping: give one of {PARTS}"),
        ({"rate": 1}, f"'rate' is unknown: give {PARTS}"),
        (
            {"limiter": "gcra", "output_rate_limiter": "gcra"},
            "'output_rate_limiter' is given twice: give limiter once",
        ),
        ({"default_rate": "20"}, "default_rate: '20' is a string: give a number"),
        ({"rates": 5}, "rates: 5 is not a mapping: give a rate for each user"),
        (
            {"rates": {"a": "100"}},
            "rates: the rate of user 'a' cannot be the string '100': give a number, without quotes",
        ),
        ({"rates": {"a": 0}}, "rates: user 'a': rate must be above zero, got 0"),
        ({"rates": {"": 1}}, f"rates: a user's name cannot be empty: {NAME}"),
        ({"limiter": 5}, "limiter: 5 is not a backend: give gcra, token_bucket, ..."),
        ({"record": 5}, "record: 5 is not a path: give the name of a file"),
        ({"on_fault": "ajar"}, "on_fault: 'ajar' is no policy: give open or closed"),
        (
            {"window_ms": 2.5},
            "window_ms 2.5: the gcra limiter has no window: leave it out, or give limiter "
            "rolling_window",
        ),
    ],
)
def test_mappings(data: object, said: str) -> None:
    assert line(assembly.from_mapping, data) == said


class Strange:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("value", "name"), [(10**5000, "int"), (Strange(), "Strange")], ids=["int", "Strange"]
)
def test_what_cannot_be_shown_is_refused_by_its_type(value: object, name: str) -> None:
    for key in ("burst_ms", "window_ms", "limiter", "record", "on_fault"):
        assert line(assembly.from_mapping, {key: value}).startswith(f"{key}: <{name}> ")


def test_parts_that_do_not_go_together_are_called_as_the_caller_calls_them() -> None:
    flag = FLAGS.__getitem__
    assert line(assembly.build, burst_ms="auto", limiter="rolling_window", label=flag) == (
        "--output-rate-burst-ms auto: the rolling_window limiter cannot do that: give "
        "milliseconds, or --output-rate-limiter gcra or token_bucket"
    )
    assert line(assembly.build, window_ms=10**9, label=flag) == (
        "--output-rate-window-ms 1000: the gcra limiter has no window: leave it out, or give "
        "--output-rate-limiter rolling_window"
    )
    assert line(assembly.build, limiter="none", label=flag) == (
        "--output-rate-limiter 'none': unknown limiter 'none': choose gcra, token_bucket, "
        "rolling_window or module:Class"
    )


class Speechless(Gcra):
    """A third party's backend that fails without a word."""

    def __init__(self, **_: object) -> None:
        raise RuntimeError


def test_a_fault_without_words_is_called_by_its_type() -> None:
    name = f"{__name__}:Speechless"
    assert line(assembly.from_mapping, {"limiter": name}) == f"limiter '{name}': RuntimeError"


def test_a_mapping_hands_on_the_burst_and_the_record(tmp_path: Path) -> None:
    made = assembly.from_mapping({"burst_ms": 2.5, "record": str(tmp_path / "x" / ".." / "r")})
    assert (made.burst_ns, made.record_path) == (2_500_000, str(tmp_path / "r"))
