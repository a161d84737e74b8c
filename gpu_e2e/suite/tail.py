"""The engine's record of one scenario: what was written since the scenario began."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class RecordTail:
    """Reads a record that is still being written, each part once."""

    def __init__(self, path: Path):
        self.path = path
        with path.open("rb") as file:
            self._meta: dict[str, Any] = json.loads(file.readline())
        if self._meta.get("e") != "meta":
            raise ValueError(f"{path}: not an engine record: its first event is not 'meta'")

    @property
    def meta(self) -> dict[str, Any]:
        return self._meta

    def mark(self) -> int:
        """The place up to which everything is written."""
        return self.path.stat().st_size

    def since(self, mark: int) -> list[dict[str, Any]]:
        """`meta`, then the whole lines that came after the mark."""
        with self.path.open("rb") as file:
            file.seek(mark)
            lines = file.read().split(b"\n")
        events = [json.loads(line) for line in lines[:-1] if line]
        return [self._meta, *(event for event in events if event["e"] != "meta")]
