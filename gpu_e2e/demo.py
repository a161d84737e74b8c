"""The project's main job in one command, after a plain clone:

    python3 gpu_e2e/demo.py

It sets up `.venv` (once: vLLM for CPU and this project), makes a tiny model, starts vLLM's own
server with limits, drives three users against it over HTTP, and says whether each promise held.
Needs Python 3.11 or newer with pip, and nothing else. Further arguments go to `gpu_e2e.main_job`.

    --venv FOLDER   set the environment up there
    --here          use the running Python's environment as it is, e.g. on a CUDA host
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
RUN = ("-m", "gpu_e2e.main_job")


def prepare() -> tuple[Path, list[str]] | str:
    """The interpreter to run in and the arguments for the run, or what is wrong."""
    if sys.version_info < (3, 11):  # noqa: UP036 - run before anything has checked it
        return f"Python {sys.version.split()[0]} is too old: use 3.11 or newer"
    sys.path.insert(0, str(ROOT))
    from gpu_e2e import install

    arguments = sys.argv[1:]
    if "--here" in arguments:
        arguments.remove("--here")
        return Path(sys.executable), arguments
    venv = install.DEFAULT_VENV
    if "--venv" in arguments[:-1]:
        at = arguments.index("--venv")
        venv = Path(arguments[at + 1])
        del arguments[at : at + 2]
    try:
        return install.ensure(venv), arguments
    except install.InstallError as error:
        return str(error)


def hand_over(python: Path, arguments: list[str]) -> NoReturn:
    """Become the run itself, so that Ctrl-C and the exit status are its own."""
    # The checkout's own code, whatever else is installed under these names.
    others = filter(None, [os.environ.get("PYTHONPATH")])
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *others])
    sys.stdout.flush()
    os.execv(python, [str(python), *RUN, *arguments])


if __name__ == "__main__":
    try:
        prepared = prepare()
    except KeyboardInterrupt:
        print("\ndemo: interrupted; run it again to go on", file=sys.stderr)
        sys.exit(130)
    if isinstance(prepared, str):
        print(f"demo: {prepared}", file=sys.stderr)
        sys.exit(2)
    hand_over(*prepared)
