"""Which process of a server holds which of its connections, as Linux says."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

_ESTABLISHED = "01"


def by_process(group: int, port: int) -> dict[int, int]:
    """Open connections to a local TCP port, by the process of the group that serves them."""
    inodes = _open_at(port)
    found: Counter[int] = Counter()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # After the command in brackets: state, parent, group.
            if int((folder / "stat").read_text().rpartition(")")[2].split()[2]) != group:
                continue
            entries = list((folder / "fd").iterdir())
        except OSError:
            continue  # it has just ended
        count = len({_target(entry) for entry in entries} & inodes)
        if count:
            found[int(folder.name)] = count
    return dict(found)


def _target(entry: Path) -> str:
    try:
        return os.readlink(entry)
    except OSError:
        return ""  # it has just been closed


def _open_at(port: int) -> set[str]:
    """The server's ends of them, under the names that /proc gives open sockets."""
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(f":{port:04X}") and fields[3] == _ESTABLISHED:
            found.add(f"socket:[{fields[9]}]")
    return found
