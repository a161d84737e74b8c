"""docs/write-your-own-backend.md, followed to the letter in an empty folder."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from limiters import make_limiter

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "write-your-own-backend.md"


@pytest.fixture(scope="module")
def blocks():
    """The page's code blocks, in order: (language, text)."""
    return re.findall(r"```(\w+)[^\n]*\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)


@pytest.fixture
def folder(tmp_path, blocks, monkeypatch):
    """An empty folder with the example in it."""
    example = next(text for language, text in blocks if language == "python")
    (tmp_path / "spacer.py").write_text(example, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


def run(folder, *arguments):
    command = [sys.executable, "-P", "-m", "pytest", "-p", "conformance.plugin", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_the_example_passes_every_rule(folder, blocks):
    command = next(line for _, text in blocks for line in text.splitlines() if "--pyargs" in line)
    name, *arguments = command.split()
    assert name == "pytest"
    done = run(folder, *arguments, "-q", "--conformance-profile", "quick")
    assert done.returncode == 0, done.stdout
    assert "FAILED" not in done.stdout
    assert "partial" not in done.stdout
    assert re.search(r"^L the limiter's own contract +passed *$", done.stdout, re.M)


def test_the_one_line_of_one_s_own_tests(folder, blocks):
    own = next(text for _, text in blocks if "limiter_machine" in text)
    (folder / "test_spacer.py").write_text(own, encoding="utf-8")
    done = run(folder, "test_spacer.py", "-q")
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_the_name_to_serve_with_is_found(folder, blocks, monkeypatch):
    line = next(text for _, text in blocks if "vllm serve" in text)
    monkeypatch.syspath_prepend(folder)
    limiter = make_limiter(line.split()[-1], default_rate=10)
    assert [limiter.try_take("a", at) for at in (0, 1, 10**8)] == [True, False, True]


def test_it_is_as_short_as_it_says(blocks):
    example = next(text for language, text in blocks if language == "python")
    inside = example[example.index("class Spacer") : example.index("CONTRACT =")]
    lines = sum(1 for line in inside.splitlines() if line.strip())
    said = re.search(r"a backend in (\d+) lines", PAGE.read_text(encoding="utf-8"))
    assert lines == int(said[1]) <= 40
