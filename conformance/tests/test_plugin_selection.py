"""What pytest may be asked for without naming a backend."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def collect(*arguments: str) -> int:
    plugin = ["-p", "conformance.plugin"]
    command = [sys.executable, "-m", "pytest", *plugin, "--collect-only", "-q", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True).returncode


def test_the_suites_own_tests_need_no_backend() -> None:
    assert collect("conformance/tests/endpoint") == pytest.ExitCode.OK


@pytest.mark.parametrize(
    "arguments",
    [
        ["conformance/level1"],
        ["conformance/level1/test_verbs.py"],
        ["--pyargs", "conformance", f"--ignore={ROOT / 'conformance' / 'tests'}"],  # it takes vLLM
        ["--pyargs", "conformance.level1"],
        ["conformance/tests/endpoint", "conformance/level1"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_rules_without_a_backend_are_a_usage_error(arguments: list[str]) -> None:
    assert collect(*arguments) == pytest.ExitCode.USAGE_ERROR
