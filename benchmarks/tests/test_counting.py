"""The counter counts instructions, and the files are compared and rewritten as promised."""

from __future__ import annotations

import dis
import gc
import json
import sys
from pathlib import Path

import pytest

from benchmarks.counted.kept import UPDATE, Kept
from benchmarks.opcodes import count


def straight(a: int, b: int) -> int:
    c = a + b
    return c * 2


def loop(n: int) -> int:
    total = 0
    for i in range(n):
        total += straight(i, i)
    return total


def counted(*call: object) -> int:
    count(*call)  # type: ignore[arg-type]  # the first one may miss some
    return count(*call).opcodes  # type: ignore[arg-type]


def test_it_counts_the_instructions_of_the_function() -> None:
    # All but the one that enters the function, which no tracer sees.
    assert counted(straight, 1, 2) == len(list(dis.get_instructions(straight))) - 1
    assert count(straight, 1, 2).answer == 6


def test_it_counts_what_the_function_calls() -> None:
    once = counted(loop, 11) - counted(loop, 10)
    assert once > counted(straight, 1, 2)
    assert counted(loop, 1010) - counted(loop, 1000) == 10 * once


def test_it_puts_back_the_tracer_and_the_collector_also_after_an_error() -> None:
    before = sys.gettrace()
    with pytest.raises(ZeroDivisionError):
        count(lambda: 1 // 0)
    assert sys.gettrace() is before
    assert gc.isenabled()


def file_of(folder: Path, counts: dict[str, int]) -> Kept:
    (folder / "py0.json").write_text(json.dumps(counts))
    return Kept("py0", folder=folder)


@pytest.mark.parametrize("new", [99, 101])
def test_a_count_that_differs_fails_and_says_what_to_do(tmp_path: Path, new: int) -> None:
    kept = file_of(tmp_path, {"a take": 100})
    kept.check_all({"a take": 100})
    with pytest.raises(AssertionError) as failure:
        kept.check_all({"a take": new})
    for word in ("a take", "100 kept", f"{new} now", f"{new - 100:+}.0%", UPDATE):
        assert word in str(failure.value)


def test_a_tolerance_is_a_part_of_what_is_kept(tmp_path: Path) -> None:
    kept = file_of(tmp_path, {"a step": 1000})
    kept.check_all({"a step": 1005}, tolerance=0.005)
    kept.check_all({"a step": 995}, tolerance=0.005)
    for new in (994, 1006):
        with pytest.raises(AssertionError):
            kept.check_all({"a step": new}, tolerance=0.005)


def test_a_missing_key_fails_and_so_does_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="none kept"):
        file_of(tmp_path, {"a take": 1}).check_all({"a refund": 1})
    with pytest.raises(AssertionError, match="none kept"):
        Kept("py1", folder=tmp_path).check_all({"a take": 1})


def test_a_count_that_nobody_measures_fails(tmp_path: Path) -> None:
    kept = file_of(tmp_path, {"a take": 1, "gone": 1})
    with pytest.raises(AssertionError, match="gone"):
        kept.check_keys({"a take"})


def test_an_update_writes_what_is_measured_and_nothing_else(tmp_path: Path) -> None:
    file_of(tmp_path, {"a take": 1, "gone": 1, "a step": 1000})
    kept = Kept("py0", update=True, folder=tmp_path)
    kept.check_all({"a take": 2, "new": 3})
    kept.check_all({"a step": 1001}, tolerance=0.005)
    kept.check_keys({"a take", "new", "a step"})
    kept.save()
    assert json.loads(kept.path.read_text()) == {"a take": 2, "new": 3, "a step": 1000}


def test_without_update_nothing_is_written(tmp_path: Path) -> None:
    kept = Kept("py1", folder=tmp_path)
    kept.save()
    assert not kept.path.exists()
