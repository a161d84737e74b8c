"""Half a minute of the soak on a house that is broken on purpose: it says what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from gpu_e2e.engine import vllm_command

ROOT = Path(__file__).resolve().parents[2]
SABOTAGE = ROOT / "gpu_e2e" / "tests" / "sabotage"
TIMEOUT_S = 600


def test_the_soak_sees_what_is_broken(tmp_path: Path) -> None:
    """Twice the rate, an answer cut short, a leak; the ledger beside them still holds."""
    command = [sys.executable, "-m", "pytest", "gpu_e2e/soak/test_soak.py", "--device", "cpu"]
    command += ["--backend", "gcra/async", "--minutes", "0.5", "--reports", str(tmp_path)]
    path = os.pathsep.join([str(SABOTAGE), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": path, vllm_command.IMPORT: "broken_house"}
    ended = subprocess.run(
        [*command, "-p", "no:cacheprovider"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    [soak] = json.loads((tmp_path / "results.json").read_text())["scenarios"]
    broken = {v["rule"] for v in soak["verdicts"] if not v["ok"]}
    assert soak["outcome"] == "BROKEN", ended.stdout[-3000:]
    assert {"bound", "S3-WHOLE-3", "memory-flat"} <= broken, ended.stdout[-3000:]
    grown = [v["message"] for v in soak["verdicts"] if v["rule"] == "memory-flat" and not v["ok"]]
    assert [message.partition(":")[0] for message in grown] == ["EngineCore"], grown
    assert not broken & {"ledger", "all-ended", "empty", "lives"}, ended.stdout[-3000:]
