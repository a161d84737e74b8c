"""Both of vLLM's server commands, as processes: how they end when limits are refused.

The table of bad values is in `test_flags`; here is what only a process shows: that the plugin is
found as an installed one, the exit status, and that nothing is written after the reason.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="runs vLLM's commands")

from sched_adapter.tests.vllm_flags import DEFAULT, USERS, WINDOW, audio_model

# command and case: arguments, what the last line names
REFUSED = {
    ("api_server", "value"): (["--model", "no/model", DEFAULT, "1e400"], [DEFAULT, "1e400"]),
    ("api_server", "rule"): (["--model", "no/model", DEFAULT, "5", WINDOW, "9"], [WINDOW, "9"]),
    ("serve", "value"): (["no/model", USERS, '{"a":1,"a":2}'], [USERS, "'a'", "twice"]),
    ("serve", "refused"): (
        ["no/model", DEFAULT, "5", "--data-parallel-size", "2"],
        ["--data-parallel-size 2", "limiter of its own"],
    ),
}

Ended = Callable[[str], tuple[int, str]]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Exit status and stderr by case."""
    folder = tmp_path_factory.mktemp("commands")
    unknown = ["no/model", f"{DEFAULT}=20"]
    hearing = ["--model", audio_model(folder / "audio"), "--skip-tokenizer-init", DEFAULT, "20"]
    cases: dict[str, dict[str, object]] = {
        " ".join(case): {"command": case[0], "argv": argv} for case, (argv, _) in REFUSED.items()
    }
    without_us = {"VLLM_PLUGINS": "another_plugin"}
    cases["excluded"] = {"command": "serve", "argv": unknown, "env": without_us}
    cases["model"] = {"command": "api_server", "argv": [*hearing, "--port", "0"]}
    statuses = run(cases, folder)
    return lambda name: (statuses[name], (folder / name).read_text(errors="replace"))


def run(cases: dict[str, dict[str, object]], folder: Path) -> dict[str, int]:
    """All cases, in an environment where the plugin is installed."""
    info = folder / "installed" / "vllm_output_rate-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-output-rate\nVersion: 0\n")
    (info / "entry_points.txt").write_text(
        "[vllm.general_plugins]\noutput_rate = sched_adapter.plugin:register\n"
    )
    paths = [str(Path(__file__).parents[2]), str(info.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    environment.setdefault("HF_HUB_OFFLINE", "1")
    program = Path(__file__).with_name("server_commands.py")
    done = subprocess.run(
        [sys.executable, str(program), json.dumps(cases), str(folder)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    statuses: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return statuses


def last_line(stderr: str) -> str:
    return stderr.rstrip("\n").splitlines()[-1]


@pytest.mark.parametrize("case", REFUSED, ids=" ".join)
def test_what_flags_decide_ends_with_status_2_and_the_reason(
    case: tuple[str, str], ended: Ended
) -> None:
    status, stderr = ended(" ".join(case))
    assert status == 2
    assert "Traceback" not in stderr
    for part in REFUSED[case][1]:
        assert part in last_line(stderr)


def test_excluded_by_vllm_plugins_the_flags_are_unknown(ended: Ended) -> None:
    status, stderr = ended("excluded")
    assert status == 2
    assert last_line(stderr).endswith(f"unrecognized arguments: {DEFAULT}=20")


def test_what_the_model_decides_is_the_last_line_of_the_error(ended: Ended) -> None:
    status, stderr = ended("model")
    assert status not in (0, 2)
    assert "multimodal input does not go with" in last_line(stderr)
