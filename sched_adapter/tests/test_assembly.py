"""The limits from a mapping and the environment: what goes together, each fault in one line."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from limiters import Gcra
from sched_adapter import assembly
from sched_adapter.config import OutputRateConfig
from sched_adapter.tests.lines import one_line


def test_the_record_of_the_environment_gives_way_to_the_flag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag, variable = str(tmp_path / "flag"), str(tmp_path / "variable")
    bare, flagged = OutputRateConfig(), OutputRateConfig(record_path=flag)
    monkeypatch.delenv(assembly.RECORD_VARIABLE, raising=False)
    assert assembly.with_environment(bare) == bare
    monkeypatch.setenv(assembly.RECORD_VARIABLE, variable)
    assert assembly.with_environment(bare).record_path == variable
    assert assembly.with_environment(flagged) == flagged
    monkeypatch.setenv(assembly.RECORD_VARIABLE, str(tmp_path))
    with pytest.raises(ValueError, match=assembly.RECORD_VARIABLE):
        assembly.with_environment(bare)


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
    assert assembly.from_mapping(data) == OutputRateConfig(
        default_rate=Fraction(1, 10),
        rates={"a": Fraction(100)},
        limiter="rolling_window",
        window_ns=1_000_000_000,
    )


@pytest.mark.parametrize("key", ["on_fault", "output_rate_on_fault"])
def test_a_mapping_can_choose_what_a_fault_means(key: str) -> None:
    assert assembly.from_mapping({"default_rate": 1, key: "closed"}).on_fault == "closed"
    assert assembly.from_mapping({"default_rate": 1, key: None}).on_fault == "open"


def test_a_mapping_can_ask_for_the_automatic_burst() -> None:
    made = assembly.from_mapping({"default_rate": 1, "burst_ms": "auto"})
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
        assembly.from_mapping(data)
    one_line(caught.value)


class Raising(Gcra):
    """A third party's backend that cannot be made."""

    def __init__(self, **_: object) -> None:
        raise RuntimeError("broken\nin two lines")


def test_a_backend_that_raises_is_a_refusal_like_any_other() -> None:
    with pytest.raises(ValueError, match=r"Raising.*broken in two lines") as caught:
        assembly.from_mapping({"default_rate": 1, "limiter": f"{__name__}:Raising"})
    one_line(caught.value)
