"""What a run leaves behind: a page, the same as JSON, and the flags that its servers had."""

from __future__ import annotations

import shlex
from pathlib import Path

from gpu_e2e.suite import users
from gpu_e2e.suite.page import page
from gpu_e2e.suite.results import Results
from gpu_e2e.suite.servers import FLAGS


def write(results: Results, folder: Path) -> None:
    """`index.html`, `results.json` and `flags.txt` in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.html").write_text(page(results), encoding="utf-8")
    results.save(folder / "results.json")
    lines = [f"{name}: {shlex.join([*users.flag(), *flags])}" for name, flags in FLAGS.items()]
    (folder / "flags.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
