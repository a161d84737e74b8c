"""The one line that somebody reads who wrote a value wrong: the value, the fault, the mend."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import pytest

from sched_adapter import parsing
from sched_adapter.tests.lines import line

JSON = 'give a JSON object such as {"user-a":100,"user-b":0.5}'
MS = "give plain milliseconds such as 100 or 2.5, with at most six decimals"
NAME = "give a string of 1 to 256 printable characters"


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
