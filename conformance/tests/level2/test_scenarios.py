"""scenarios.md names tests that there are, and each scenario has one."""

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
LEVEL_2 = HERE.parents[1] / "level2"
PAGE = HERE.parent / "scenarios.md"
NEED_HTTP = {10}


def rows():
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if found := re.match(r"\| (\d+) \|.*\| ([^|]*) \|$", line):
            yield int(found[1]), re.findall(r"`(\w+)`", found[2])


def functions():
    for path in LEVEL_2.glob("test_*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                yield node.name


def test_every_scenario_has_a_test_that_exists():
    listed = dict(rows())
    assert listed.keys() == set(range(1, 19)) - NEED_HTTP
    known = set(functions())
    for number, tests in listed.items():
        assert tests, number
        assert set(tests) <= known, number
