"""Limits: what makes them, what they refuse, and that they arrive as they left."""

import copy
import pickle
import subprocess
import sys
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

from sched_adapter import config
from sched_adapter.config import OutputRateConfig

FULL = OutputRateConfig(
    default_rate=Fraction(1, 3),
    rates={"a": Fraction(100), "用户": Fraction(1, 10)},
    limiter="rolling_window",
    burst_ns=5,
    window_ns=1_000_000_000,
    options={},
    record_path="/tmp/record.jsonl",
    on_fault="closed",
)


def fake_vllm_config() -> Any:
    return SimpleNamespace(scheduler_config=SimpleNamespace(scheduler_cls=None))


def test_nothing_is_limited_unless_said() -> None:
    assert not OutputRateConfig().enabled
    assert not OutputRateConfig(limiter="token_bucket", burst_ns=0).enabled
    assert OutputRateConfig(default_rate=Fraction(1)).enabled
    assert OutputRateConfig(rates={"a": Fraction(1)}).enabled


def test_rates_are_kept_exact_whatever_they_were_given_as() -> None:
    made = OutputRateConfig(default_rate=0.1, rates={"a": "0.3", "b": 7})  # type: ignore[arg-type, dict-item]
    assert made.default_rate == Fraction(1, 10)
    assert made.rates == {"a": Fraction(3, 10), "b": Fraction(7)}


def test_the_rates_are_a_copy() -> None:
    given = {"a": Fraction(1)}
    made = OutputRateConfig(rates=given)
    given["b"] = Fraction(2)
    assert set(made.rates) == {"a"}


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"default_rate": 0}, "default_rate"),
        ({"default_rate": -1}, "default_rate"),
        ({"default_rate": True}, "default_rate"),
        ({"default_rate": float("nan")}, "default_rate"),
        ({"rates": {"a": 0}}, "rates.*'a'"),
        ({"rates": {"": 1}}, "rates.*empty"),
        ({"rates": {"a\n": 1}}, "rates"),
        ({"rates": {1: 1}}, "rates.*int"),
        ({"rates": [1]}, "rates.*list"),
        ({"limiter": ""}, "limiter"),
        ({"limiter": None}, "limiter"),
        ({"burst_ns": -1}, "burst_ns.*-1"),
        ({"burst_ns": 1.5}, "burst_ns"),
        ({"burst_ns": True}, "burst_ns"),
        ({"window_ns": 0, "limiter": "rolling_window"}, "window_ns"),
        ({"window_ns": 1}, "rolling_window"),
        ({"options": {"auto_burst": True}, "limiter": "rolling_window"}, "automatic burst"),
        ({"options": {"x": object()}}, "options"),
        ({"options": {1: 1}}, "options"),
        ({"options": {"burst_ns": 5}}, "options cannot hold 'burst_ns': give it as a setting"),
        ({"record_path": b"x"}, "record_path"),
        ({"on_fault": "ajar"}, "on_fault.*ajar.*open or closed"),
        ({"on_fault": None}, "on_fault"),
    ],
)
def test_bad_limits_are_refused_in_one_line(fields: dict[str, Any], fault: str) -> None:
    with pytest.raises((ValueError, TypeError), match=fault) as caught:
        OutputRateConfig(**fields)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("limits", [FULL, OutputRateConfig()])
def test_json_brings_the_same_limits_back(limits: OutputRateConfig) -> None:
    import json

    assert OutputRateConfig.from_json(json.loads(json.dumps(limits.to_json()))) == limits


@pytest.mark.parametrize("travel", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy])
def test_limits_travel_with_the_engines_config(travel: Any) -> None:
    vllm_config = fake_vllm_config()
    config.attach(vllm_config, OutputRateConfig())
    config.attach(vllm_config, FULL)
    assert config.of(travel(vllm_config)) == FULL
    assert config.limited(travel(vllm_config))


@pytest.mark.parametrize("bare", [fake_vllm_config(), SimpleNamespace(), None])
def test_a_config_without_limits_says_so(bare: Any) -> None:
    assert config.of(bare) is None
    assert not config.limited(bare)


def test_the_limiter_is_made_from_all_of_it() -> None:
    limiter = FULL.make_limiter()
    assert limiter.rate_of("a") == 100
    assert limiter.rate_of("someone else") == Fraction(1, 3)
    strict = OutputRateConfig(
        default_rate=Fraction(3), limiter="rolling_window", window_ns=1_000_000_000
    ).make_limiter()
    assert [strict.try_take("a", 0) for _ in range(4)] == [True, True, True, False]
    assert not strict.try_take("a", 999_999_999)
    bursty = OutputRateConfig(default_rate=Fraction(10), burst_ns=0).make_limiter()
    assert [bursty.try_take("a", 0) for _ in range(2)] == [True, False]


def test_importing_the_package_imports_neither_vllm_nor_torch() -> None:
    code = (
        "import sched_adapter, sched_adapter.assembly, sched_adapter.config, "
        "sched_adapter.parsing, sched_adapter.plugin, sched_adapter.surface, sys; "
        "sys.exit(bool({'vllm', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
