"""The documents' code blocks, and how each is to be checked.

The check stands behind the language: ```bash check=server. Renderers show nothing of it.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Languages of what a reader may copy and run, or feed to a program.
RUNNABLE = {"bash", "sh", "shell", "console", "python", "yaml", "toml", "ini", "json"}

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """One code block of a document."""

    document: str
    line: int
    language: str
    check: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"

    def commands(self) -> list[str]:
        """The shell commands, each on one line."""
        joined = self.text.replace("\\\n", " ")
        return [" ".join(line.split()) for line in joined.splitlines() if line.strip()]

    def words(self) -> list[str]:
        """The words of the block's only command."""
        [command] = self.text.replace("\\\n", " ").strip().splitlines()
        return shlex.split(command)


def names() -> list[str]:
    """The project's documents, relative to its root."""
    found = (path.relative_to(ROOT) for path in ROOT.rglob("*.md"))
    # Not environments, caches and what a run left behind.
    return sorted(str(path) for path in found if not path.parts[0].startswith((".", "reports")))


def text_of(document: str) -> str:
    """A document's text."""
    return (ROOT / document).read_text(encoding="utf-8")


def blocks(document: str) -> list[Block]:
    """A document's code blocks in their order."""
    text = text_of(document)
    found = []
    for match in _FENCE.finditer(text):
        language, *rest = match["info"].split()[:2] or [""]
        check = rest[0].removeprefix("check=") if rest and rest[0].startswith("check=") else ""
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(document, line, language, check, match["text"]))
    return found


def checked(kind: str) -> list[Block]:
    """All blocks with this check."""
    return [block for name in names() for block in blocks(name) if block.check == kind]


def only(kind: str) -> Block:
    """The one block with this check."""
    [block] = checked(kind)
    return block


def table_after(document: str, words: str) -> list[list[str]]:
    """The rows, without the heading, of the first table after these words."""
    lines = text_of(document).partition(words)[2].splitlines()
    rows: list[list[str]] = []
    for line in lines:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
        elif rows:
            break
    return rows[2:]
