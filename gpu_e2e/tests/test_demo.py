"""The bootstrap: it runs on a bare Python, and hands over to the environment that it made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gpu_e2e import demo, install


@pytest.fixture
def arguments(monkeypatch):
    def give(*words):
        monkeypatch.setattr(sys, "argv", ["demo.py", *words])

    return give


def test_it_sets_up_the_default_environment_and_passes_arguments_on(monkeypatch, arguments):
    arguments("--mode", "sync")
    monkeypatch.setattr(install, "ensure", lambda venv: venv / "bin" / "python")
    assert demo.prepare() == (install.DEFAULT_VENV / "bin" / "python", ["--mode", "sync"])


def test_another_environment_or_the_running_one(monkeypatch, arguments):
    monkeypatch.setattr(install, "ensure", lambda venv: venv / "bin" / "python")
    arguments("--venv", "/x", "--limiter", "gcra")
    assert demo.prepare() == (Path("/x/bin/python"), ["--limiter", "gcra"])
    arguments("--here", "--device", "cuda")
    assert demo.prepare() == (Path(sys.executable), ["--device", "cuda"])


def test_what_goes_wrong_is_one_message(monkeypatch, arguments):
    def fails(venv):
        raise install.InstallError("pip found torch nowhere")

    arguments()
    monkeypatch.setattr(install, "ensure", fails)
    assert demo.prepare() == "pip found torch nowhere"
    monkeypatch.setattr(demo.sys, "version_info", (3, 10, 1))
    assert "3.11 or newer" in demo.prepare()


def test_it_becomes_the_run_with_the_checkout_first_in_the_path(monkeypatch):
    called = []
    monkeypatch.setattr(demo.os, "execv", lambda path, words: called.append((str(path), words)))
    monkeypatch.setenv("PYTHONPATH", "/mine")
    demo.hand_over(Path("/v/bin/python"), ["--mode", "sync"])
    words = ["/v/bin/python", "-m", "gpu_e2e.main_job", "--mode", "sync"]
    assert called == [("/v/bin/python", words)]
    assert demo.os.environ["PYTHONPATH"] == f"{demo.ROOT}:/mine"


def test_it_needs_nothing_but_the_standard_library():
    """Everything that is imported before the environment exists, with site-packages shut out."""
    code = "import gpu_e2e.demo, gpu_e2e.install as i; i._pyproject()"
    run = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import sys; sys.path.insert(0, {str(demo.ROOT)!r})\n{code}",
        ],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
