"""Limits as people write them: each number by its text, each fault in one line."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from limiters import Gcra
from sched_adapter import parsing
from sched_adapter.config import OutputRateConfig


def one_line(error: BaseException) -> str:
    text = str(error)
    assert text.isprintable()
    assert len(text) < 400
    return text


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


def test_the_record_of_the_environment_gives_way_to_the_flag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag, variable = str(tmp_path / "flag"), str(tmp_path / "variable")
    bare, flagged = OutputRateConfig(), OutputRateConfig(record_path=flag)
    monkeypatch.delenv(parsing.RECORD_VARIABLE, raising=False)
    assert parsing.with_environment(bare) == bare
    monkeypatch.setenv(parsing.RECORD_VARIABLE, variable)
    assert parsing.with_environment(bare).record_path == variable
    assert parsing.with_environment(flagged) == flagged
    monkeypatch.setenv(parsing.RECORD_VARIABLE, str(tmp_path))
    with pytest.raises(ValueError, match=parsing.RECORD_VARIABLE):
        parsing.with_environment(bare)


@pytest.mark.parametrize(
    "data",
    [
        {"default_rate": 0.1, "rates": {"a": 100}, "limiter": "rolling_window", "window_ms": 1000},
        {
            "default_user_output_tokens_per_second": 0.1,
            "user_output_tokens_per_second": {"a": 100},
            "output_rate_limiter": "rolling_window",
            "output_rate_window_ms": 1000,
            "output_rate_record": None,
        },
        OutputRateConfig(Fraction(1, 10), {"a": Fraction(100)}, "rolling_window", window_ns=10**9),
    ],
)
def test_a_mapping_knows_the_flags_names_and_short_ones(data: Any) -> None:
    assert parsing.from_mapping(data) == OutputRateConfig(
        default_rate=Fraction(1, 10),
        rates={"a": Fraction(100)},
        limiter="rolling_window",
        window_ns=1_000_000_000,
    )


@pytest.mark.parametrize("key", ["on_fault", "output_rate_on_fault"])
def test_a_mapping_can_choose_what_a_fault_means(key: str) -> None:
    assert parsing.from_mapping({"default_rate": 1, key: "closed"}).on_fault == "closed"
    assert parsing.from_mapping({"default_rate": 1, key: None}).on_fault == "open"


def test_a_mapping_can_ask_for_the_automatic_burst() -> None:
    made = parsing.from_mapping({"default_rate": 1, "burst_ms": "auto"})
    assert made.options == {"auto_burst": True}


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (5, "not a mapping"),
        ([("default_rate", 1)], "not a mapping"),
        ({"rate": 1}, "'rate' is unknown"),
        ({1: 1}, "1 is unknown"),
        ({"limiter": "gcra", "output_rate_limiter": "gcra"}, "given twice"),
        ({"default_rate": "20"}, "default_rate.*string"),
        ({"default_rate": True}, "default_rate"),
        ({"default_rate": float("nan")}, "default_rate"),
        ({"default_rate": float("inf")}, "default_rate"),
        ({"default_rate": 0}, "default_rate"),
        ({"rates": {"a": "100"}}, "rates.*without quotes"),
        ({"rates": {"a": False}}, "rates.*'a'"),
        ({"rates": {"": 1}}, "rates.*empty"),
        ({"rates": {5: 1}}, "rates.*int"),
        ({"rates": '{"a":1}'}, "rates.*not a mapping"),
        ({"limiter": "no_such_backend"}, "limiter.*no_such_backend"),
        ({"limiter": 5}, "limiter.*5"),
        ({"burst_ms": -1}, "burst_ms.*-1"),
        ({"burst_ms": True}, "burst_ms"),
        ({"burst_ms": "auto", "limiter": "rolling_window"}, "burst_ms auto.*rolling_window"),
        ({"window_ms": 1000}, "window_ms 1000.*gcra.*rolling_window"),
        ({"options": {"no_such_option": 1}}, "no_such_option"),
        ({"options": 5}, "options"),
        ({"record": 5}, "record.*5"),
        ({"on_fault": "ajar"}, "on_fault.*ajar.*open or closed"),
        ({"on_fault": True}, "on_fault"),
    ],
)
def test_a_bad_mapping_is_refused_by_key_and_value(data: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=fault) as caught:
        parsing.from_mapping(data)
    one_line(caught.value)


class Raising(Gcra):
    """A third party's backend that cannot be made."""

    def __init__(self, **_: object) -> None:
        raise RuntimeError("broken\nin two lines")


def test_a_backend_that_raises_is_a_refusal_like_any_other() -> None:
    with pytest.raises(ValueError, match=r"Raising.*broken in two lines") as caught:
        parsing.from_mapping({"default_rate": 1, "limiter": f"{__name__}:Raising"})
    one_line(caught.value)
