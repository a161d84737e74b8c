"""One value of the limits: each number by its text, each fault in one line."""

from fractions import Fraction
from pathlib import Path

import pytest

from sched_adapter import parsing
from sched_adapter.tests.lines import one_line


@pytest.mark.parametrize(
    ("text", "rate"),
    [("20", 20), ("0.1", Fraction(1, 10)), ("2.50", Fraction(5, 2)), ("1e2", 100), (" 3 ", 3)],
)
def test_a_rate_is_read_by_its_text(text: str, rate: Fraction) -> None:
    assert parsing.rate_text(text) == rate


BAD_RATES = [
    *("0", "0.0", "-1", "-0.5", "nan", "NaN", "inf", "-inf", "Infinity", "1e400", "1e30000000"),
    *("", " ", "abc", "1_000", "1 0", "0x10", "１０", "true", '"5"', "[1]", "1/0", "٣"),
]


@pytest.mark.parametrize("text", BAD_RATES)
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        parsing.rate_text(text)
    one_line(caught.value)


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("{}", {}),
        ('{"a":100,"b":0.5}', {"a": 100, "b": Fraction(1, 2)}),
        ('{"a":0.1}', {"a": Fraction(1, 10)}),
        ('{"a":0.10000000000000000555}', {"a": Fraction("0.10000000000000000555")}),
        ('{"a":1e2,"用户":3}', {"a": 100, "用户": 3}),
        (' {"__anonymous__": 1} ', {"__anonymous__": 1}),
    ],
)
def test_users_are_read_from_json_by_the_text_of_their_numbers(
    text: str, rates: dict[str, Fraction]
) -> None:
    assert parsing.rates_json(text) == rates


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("{'a':1}", "not JSON"),
        ('{"a":1}x', "not JSON"),
        ("[]", "not a JSON object"),
        ("5", "not a JSON object"),
        ('"a"', "not a JSON object"),
        ("null", "not a JSON object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":1,"a":2}', "'a' is given twice"),
        ('{"a":1,"\\u0061":2}', "'a' is given twice"),
        ('{"a":"100"}', '"100".*without quotes'),
        ('{"a":true}', "true"),
        ('{"a":false}', "false"),
        ('{"a":null}', "null"),
        ('{"a":[1]}', "a list"),
        ('{"a":{}}', "an object"),
        ('{"a":{"b":1}}', "a name with a dot"),
        ('{"a":NaN}', "NaN"),
        ('{"a":Infinity}', "Infinity"),
        ('{"a":-Infinity}', "Infinity"),
        ('{"a":1e400}', "1e400"),
        ('{"a":1e30000000}', "1e30000000"),
        ('{"a":0}', "'a'.*0"),
        ('{"a":-1}', "'a'.*-1"),
        ('{"a":' + "9" * 5000 + "}", "'a'"),
        ('{"":1}', "empty"),
        ('{"a\\n":1}', "character 2"),
        ('{"\\ud800":1}', "ud800"),
        ('{"' + "x" * 257 + '":1}', "257 characters"),
    ],
)
def test_what_is_no_map_of_users_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault) as caught:
        parsing.rates_json(text)
    one_line(caught.value)


@pytest.mark.parametrize(
    ("value", "ns"),
    [("100", 100_000_000), ("2.5", 2_500_000), ("0.000001", 1), (100, 100_000_000), (0.5, 500_000)],
)
def test_milliseconds_become_whole_nanoseconds(value: object, ns: int) -> None:
    assert parsing.milliseconds(value, zero=True) == ns
    assert parsing.burst(value) == ns
    assert parsing.window(value) == ns


def test_a_burst_may_be_zero_or_automatic_and_a_window_neither() -> None:
    assert parsing.burst("0") == 0
    assert parsing.burst("auto") == parsing.AUTO
    for text in ("0", "0.0", "auto"):
        with pytest.raises(ValueError, match="milliseconds"):
            parsing.window(text)


@pytest.mark.parametrize(
    "value",
    [*("", "-1", "1e3", "nan", "inf", "1_0", "٣", "0.0000001", "9" * 13, "AUTO"), True, [], 1e-9],
)
def test_what_is_no_burst_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="auto") as caught:
        parsing.burst(value)
    one_line(caught.value)


def test_a_record_needs_a_folder(tmp_path: Path) -> None:
    assert parsing.record_path(str(tmp_path / "new.jsonl")) == str(tmp_path / "new.jsonl")
    for bad in (str(tmp_path), str(tmp_path / "no" / "file"), "", "a\0b", 5):
        with pytest.raises(ValueError, match="give") as caught:
            parsing.record_path(bad)
        one_line(caught.value)
