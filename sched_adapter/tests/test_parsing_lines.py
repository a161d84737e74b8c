"""The one line that somebody reads who got a limit wrong: the value, the fault, the mend."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from limiters import Gcra
from sched_adapter import parsing
from sched_adapter.flags import FLAGS

JSON = 'give a JSON object such as {"user-a":100,"user-b":0.5}'
MS = "give plain milliseconds such as 100 or 2.5, with at most six decimals"
NAME = "give a string of 1 to 256 printable characters"
PARTS = "default_rate, rates, limiter, burst_ms, window_ms, record, on_fault, options"


def line(read: Callable[..., object], *args: Any, **kwargs: Any) -> str:
    """The whole text of a refusal, for the caller to compare."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        read(*args, **kwargs)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", f"'' is not JSON (Expecting value, column 1): {JSON}"),
        ('{"a":1}x', f"'{{\"a\":1}}x' is not JSON (Extra data, column 8): {JSON}"),
        ("[]", f"'[]' is not a JSON object: {JSON}"),
        ("[" * 100_000, f"'{'[' * 76}... is nested too deeply: {JSON}"),
        ('{"a":1,"a":2}', "user 'a' is given twice: give each user one rate"),
        ('{"a":"9"}', "the rate of user 'a' cannot be \"9\": give a number, without quotes"),
        ('{"a":true}', "the rate of user 'a' cannot be true: give a number, without quotes"),
        ('{"a":false}', "the rate of user 'a' cannot be false: give a number, without quotes"),
        ('{"a":null}', "the rate of user 'a' cannot be null: give a number, without quotes"),
        ('{"a":[1]}', "the rate of user 'a' cannot be a list: give a number, without quotes"),
        ('{"a":{}}', "the rate of user 'a' cannot be an object: give a number, without quotes"),
        (
            '{"a":{"b":1}}',
            "the rate of user 'a' cannot be an object: give a number; a name with a dot in it "
            "needs the flag's JSON form",
        ),
        ('{"a":NaN}', "NaN is not a rate: give a positive number of tokens per second"),
        ('{"a":0}', "user 'a': rate must be above zero, got '0'"),
        ('{"":1}', f"a user's name cannot be empty: {NAME}"),
        ('{"a\\n":1}', f"a user's name cannot hold '\\n' (character 2): {NAME}"),
    ],
)
def test_users_in_json(text: str, said: str) -> None:
    assert line(parsing.rates_json, text) == said


@pytest.mark.parametrize("value", ["", "1s", -1, True, [], None, b"5"])
def test_durations(value: object) -> None:
    said = f"{value!r} is not a duration: {MS}"
    assert line(parsing.window, value) == said
    assert line(parsing.burst, value) == f"{said}, or auto"


def test_a_window_of_nothing() -> None:
    assert line(parsing.window, "0.0") == "'0.0' is no duration: give more than 0 milliseconds"


def test_a_duration_may_be_any_number_that_reads_as_a_plain_decimal() -> None:
    assert parsing.burst(Decimal("2.5")) == parsing.burst(2.5) == 2_500_000
    assert parsing.burst(Fraction(3)) == 3_000_000


class Strange:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("value", "name"), [(10**5000, "int"), (Strange(), "Strange")], ids=["int", "Strange"]
)
def test_what_cannot_be_shown_is_refused_by_its_type(value: object, name: str) -> None:
    for key in ("burst_ms", "window_ms", "limiter", "record", "on_fault"):
        assert line(parsing.from_mapping, {key: value}).startswith(f"{key}: <{name}> ")


@pytest.mark.parametrize(("length", "shown"), [(80, 80), (81, 80), (10_000, 80)])
def test_a_value_is_shown_whole_up_to_80_characters(length: int, shown: int) -> None:
    text = parsing.shown("x" * (length - 2))
    assert len(text) == shown
    assert text.endswith("x'" if length == shown else "xxx...")


@pytest.mark.parametrize(
    ("read", "value", "said"),
    [
        (parsing.limiter_name, "", "'' is not a backend: give gcra, token_bucket, ..."),
        (parsing.limiter_name, "a\nb", "'a\\nb' is not a backend: give gcra, token_bucket, ..."),
        (parsing.on_fault, "ajar", "'ajar' is no policy: give open or closed"),
        (parsing.on_fault, "", "'' is no policy: give open or closed"),
        (parsing.record_path, "", "'' is not a path: give the name of a file"),
        (
            parsing.record_path,
            "/no/such/folder/r",
            "'/no/such/folder/r' cannot be a record: give a file in an existing folder",
        ),
    ],
)
def test_names_policies_and_paths(read: Callable[[object], str], value: str, said: str) -> None:
    assert line(read, value) == said


@pytest.mark.parametrize("text", ["\t5", "5\n", "\u00a05", "X5", "5X"])
def test_only_plain_blanks_around_a_rate_are_forgiven(text: str) -> None:
    assert line(parsing.rate_text, text).endswith(f"got {text!a}")


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
    assert line(parsing.from_mapping, data) == said


def test_parts_that_do_not_go_together_are_called_as_the_caller_calls_them() -> None:
    flag = FLAGS.__getitem__
    assert line(parsing.build, burst_ms="auto", limiter="rolling_window", label=flag) == (
        "--output-rate-burst-ms auto: the rolling_window limiter cannot do that: give "
        "milliseconds, or --output-rate-limiter gcra or token_bucket"
    )
    assert line(parsing.build, window_ms=10**9, label=flag) == (
        "--output-rate-window-ms 1000: the gcra limiter has no window: leave it out, or give "
        "--output-rate-limiter rolling_window"
    )
    assert line(parsing.build, limiter="none", label=flag) == (
        "--output-rate-limiter 'none': unknown limiter 'none': choose gcra, token_bucket, "
        "rolling_window or module:Class"
    )


class Speechless(Gcra):
    """A third party's backend that fails without a word."""

    def __init__(self, **_: object) -> None:
        raise RuntimeError


def test_a_fault_without_words_is_called_by_its_type() -> None:
    name = f"{__name__}:Speechless"
    assert line(parsing.from_mapping, {"limiter": name}) == f"limiter '{name}': RuntimeError"


def test_a_mapping_hands_on_the_burst_and_the_record(tmp_path: Path) -> None:
    made = parsing.from_mapping({"burst_ms": 2.5, "record": str(tmp_path / "x" / ".." / "r")})
    assert (made.burst_ns, made.record_path) == (2_500_000, str(tmp_path / "r"))
