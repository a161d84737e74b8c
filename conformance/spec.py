"""The rules of SPEC.md, read from SPEC.md: the text that people read is the list that tests use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

SPEC_VERSION = 1
"""The latest version of the rules; a contract names the one that it was written for."""

LEVELS: Mapping[int, str] = {
    1: "the limiter alone",
    2: "the real scheduler",
    3: "a running endpoint",
}

SEMANTICS: Mapping[str, str] = {
    "L": "the limiter's own contract",
    "S1": "only output tokens are charged",
    "S2": "one shared quota, evenly",
    "S3": "paused, never truncated",
    "S4": "others unaffected",
    "S5": "sync and async",
}

_HEADING = re.compile(r"^### (?P<id>(?P<group>L|S[1-5])-[A-Z]+(?:-[A-Z]+)*-(?P<level>[1-3]))$")
_FORCE = re.compile(r"^(?P<must>MUST|SHOULD), since version (?P<since>[0-9]+)\.$")
_PARTS = {"- Intent: ": "intent", "- Rule: ": "statement", "- If this fails: ": "look_at"}


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, as SPEC.md words it."""

    id: str
    semantic: str
    """A key of `SEMANTICS`."""
    level: int
    """A key of `LEVELS`."""
    must: bool
    since: int
    """The first spec version that has it."""
    intent: str
    statement: str
    look_at: str


@cache
def rules() -> Mapping[str, Rule]:
    """All rules by id, in the order of SPEC.md."""
    return read(files(__package__).joinpath("SPEC.md").read_text(encoding="utf-8"))


def read(text: str) -> Mapping[str, Rule]:
    """The rules of a text laid out as SPEC.md is; ValueError names the line that is not."""
    found: dict[str, Rule] = {}
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if not line.startswith("### "):
            continue
        heading = _HEADING.match(line)
        if heading is None:
            raise ValueError(f"line {number + 1}: no rule id, got {line!r}")
        rule = _rule(heading, lines[number + 1 : number + 5])
        if rule.id in found:
            raise ValueError(f"line {number + 1}: {rule.id} is there twice")
        found[rule.id] = rule
    return found


def _rule(heading: re.Match[str], lines: list[str]) -> Rule:
    name = heading["id"]
    force = _FORCE.match(lines[0]) if lines else None
    if force is None or len(lines) < 4:
        raise ValueError(f"{name}: MUST or SHOULD, its version, intent, rule and hint must follow")
    parts = {}
    for line, (start, part) in zip(lines[1:], _PARTS.items(), strict=True):
        if not line.startswith(start) or not line.endswith("."):
            raise ValueError(f"{name}: expected a sentence after {start!r}, got {line!r}")
        parts[part] = line.removeprefix(start)
    since = int(force["since"])
    if not 1 <= since <= SPEC_VERSION:
        raise ValueError(f"{name}: there is no spec version {since}")
    return Rule(
        id=name,
        semantic=heading["group"],
        level=int(heading["level"]),
        must=force["must"] == "MUST",
        since=since,
        **parts,
    )
