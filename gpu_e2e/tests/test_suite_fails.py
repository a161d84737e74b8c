"""The suite fails when the limits are broken: run by `tox -e e2e`, since it starts servers.

python -m pytest gpu_e2e/tests -m server
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_e2e.engine import vllm_command

pytestmark = pytest.mark.server

ROOT = Path(__file__).resolve().parents[2]
SABOTAGE = Path(__file__).parent / "sabotage"
TIMEOUT_S = 600


def run(tmp_path, select, **env):
    """The broken scenarios by name, with their broken rules; all of them; how it ended."""
    command = [sys.executable, "-m", "pytest", "gpu_e2e/scenarios", "--device", "cpu", "-q"]
    command += ["--backend", "gcra", "--mode", "sync", "-k", select, "-p", "no:cacheprovider"]
    # A broken one may wait for what never comes; a good one is over in ten.
    command += ["--reports", str(tmp_path), "--patience", "25"]
    path = os.pathsep.join([str(SABOTAGE), str(ROOT)])
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, **env},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    found = json.loads((tmp_path / "results.json").read_text())["scenarios"]
    broken = {
        s["name"]: {v["rule"] for v in s["verdicts"] if not v["ok"]}
        for s in found
        if s["outcome"] == "BROKEN"
    }
    return broken, found, ended


def test_broken_limits_are_caught_each_by_its_rule(tmp_path):
    """Twice the rate, no refund, no rotation, no limit: and a scenario beside them that holds."""
    select = "several_streams or anonymous or long_prompts or stop_string or end_of_sequence"
    broken, found, ended = run(tmp_path, select, **{vllm_command.IMPORT: "broken_limits"})
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, ended.stdout[-3000:]
    assert "bound" in broken["several streams of several users"]  # twice the rate
    # No refund: what its prompts paid for nothing keeps its answers from ever coming.
    assert "long prompts beside a user who decodes" in broken
    assert "spread" in broken["anonymous users share one quota"]  # no rotation
    assert "bound" in broken["stop string"]  # no limit
    assert len(broken) == len(found) - 1, found  # that of the other users holds


def test_without_the_plugin_nothing_passes(tmp_path):
    """A vLLM that does not load it knows no such flags, and says so."""
    _, found, ended = run(tmp_path, "stop_string", VLLM_PLUGINS="nobody")
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, ended.stdout[-3000:]
    assert [s["outcome"] for s in found] == ["BROKEN"]
    assert "--user-output-tokens-per-second" in found[0]["why"]
