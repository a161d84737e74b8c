"""The committed counts: one readable JSON file per version, compared, or rewritten with `--update`.

A count that differs fails in both directions: dearer is what the file is there for, and after a
cheaper one it would let the next change be dearer again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

FOLDER = Path(__file__).parent
UPDATE = "python -m pytest benchmarks/counted --update"


class Kept:
    """The counts of one version, in the file `name`.json.

    With `update` a count that differs is taken instead, and `save` writes the file.
    """

    def __init__(self, name: str, *, update: bool = False, folder: Path = FOLDER) -> None:
        self.path = folder / f"{name}.json"
        self.update = update
        self.counts: dict[str, int] = {}
        if self.path.exists():
            self.counts = json.loads(self.path.read_text(encoding="utf-8"))

    def check_all(self, new: Mapping[str, int], tolerance: float = 0.0) -> None:
        """Compare counts with what is kept; each may differ by `tolerance` times the kept one.

        AssertionError says old, new, and how to update.
        """
        differs = [key for key, n in new.items() if self._differs(key, n, tolerance)]
        if self.update:
            # One inside the tolerance stays, so that the diff shows changes of the code alone.
            self.counts.update({key: new[key] for key in differs})
        elif differs:
            lines = "\n".join(f"  {key}: {self._told(key, new[key])}" for key in differs)
            raise AssertionError(
                f"{len(differs)} of {len(new)} counts are not those of {self.path.name}:\n{lines}\n"
                f"If that is what the change is worth: {UPDATE}, and commit the file"
            )

    def check_keys(self, known: Iterable[str]) -> None:
        """Every count that is kept has to be measured. AssertionError names those that are not."""
        stale = self.counts.keys() - set(known)
        if self.update:
            for key in stale:
                del self.counts[key]
        elif stale:
            raise AssertionError(
                f"{self.path.name} has counts that nobody measures: {sorted(stale)}. "
                f"To drop them: {UPDATE}"
            )

    def save(self) -> None:
        """Write the file, if it is to be updated and there is something to write."""
        if self.update and self.counts:
            text = json.dumps(self.counts, indent=2, sort_keys=True, ensure_ascii=False)
            self.path.write_text(text + "\n", encoding="utf-8")

    def _differs(self, key: str, new: int, tolerance: float) -> bool:
        old = self.counts.get(key)
        return old is None or abs(new - old) > tolerance * old

    def _told(self, key: str, new: int) -> str:
        old = self.counts.get(key)
        if old is None:
            return f"{new} now, none kept"
        change = f"{(new - old) / old:+.1%}" if old else f"{new - old:+d}"
        return f"{old} kept, {new} now, {change}"


def python() -> str:
    """The name of this Python in a file's name: py311."""
    return f"py{sys.version_info.major}{sys.version_info.minor}"
