"""The Python sources of another vLLM version in a folder of their own, to be put before the
installed one: `python .ci/vllm_sources.py PACKAGE==VERSION FOLDER`.

The scheduler and its KV manager are Python alone, so their tests run on a version's sources over
an environment of another version, with that one's libraries. No engine runs so: the compiled
parts are left out. A second call with the same version finds the folder done.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

#: What a version consists of besides compiled code.
SUFFIXES = {".py", ".json", ".yaml", ".jinja", ".txt", ".pyi"}
_DONE = ".complete"


def main(requirement: str, folder: Path) -> int:
    """Download the wheel, without dependencies, and unpack its sources; 0 on success."""
    stamp = folder / _DONE
    if stamp.is_file() and stamp.read_text() == requirement:
        return 0
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        if subprocess.run([*command, "--dest", temporary, requirement]).returncode:
            print(f"pip has no wheel for {requirement}: see its message above", file=sys.stderr)
            return 1
        (wheel,) = Path(temporary).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            sources = [n for n in names if n.startswith("vllm/") and Path(n).suffix in SUFFIXES]
            archive.extractall(folder, sources)
    stamp.write_text(requirement)
    print(f"{requirement}: {len(sources)} files of source in {folder}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
