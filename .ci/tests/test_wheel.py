"""The built wheel: it holds the three packages whole, nothing else, and needs nothing else.

Runs in an environment where tox has installed the wheel and named it in TOX_PACKAGE.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("limiters", "sched_adapter", "conformance")
DISTRIBUTION = "vllm-output-rate"


@pytest.fixture(scope="module")
def wheel():
    path = os.environ.get("TOX_PACKAGE")
    assert path, "TOX_PACKAGE names no wheel: run this as `tox -e wheel`"
    with zipfile.ZipFile(path) as archive:
        yield {name: archive.read(name) for name in archive.namelist()}


def sources():
    """The packages' own files: not their tests, and not what running them leaves behind."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*"):
            parts = path.relative_to(ROOT).parts
            if path.is_file() and not {"tests", "__pycache__"} & set(parts):
                yield "/".join(parts), path.read_bytes()


def test_it_holds_every_file_of_the_packages_as_it_is(wheel):
    expected = dict(sources())
    assert expected.keys() - wheel.keys() == set(), "left out of the wheel"
    assert [name for name, content in expected.items() if wheel[name] != content] == []


def test_it_holds_nothing_else(wheel):
    metadata = {name for name in wheel if name.split("/")[0].endswith(".dist-info")}
    assert wheel.keys() - metadata - dict(sources()).keys() == set()


@pytest.mark.parametrize("package", ["limiters", "sched_adapter"])
def test_its_types_are_for_others_too(wheel, package):
    assert f"{package}/py.typed" in wheel


def test_it_requires_nothing_but_for_extras():
    requires = importlib.metadata.requires(DISTRIBUTION) or []
    assert [line for line in requires if "extra ==" not in line] == []
    extras = importlib.metadata.metadata(DISTRIBUTION).get_all("Provides-Extra")
    assert set(extras) == {"gpu", "cpu", "conformance"}


def test_vllm_finds_the_plugin_in_it():
    points = importlib.metadata.distribution(DISTRIBUTION).entry_points
    [plugin] = [point for point in points if point.group == "vllm.general_plugins"]
    assert (plugin.name, plugin.value) == ("output_rate", "sched_adapter.plugin:register")


def test_it_imports_and_decides_with_nothing_else_installed(tmp_path):
    code = (
        "import sys, limiters, sched_adapter.plugin, sched_adapter.record, conformance\n"
        "limiter = limiters.make_limiter('gcra', default_rate=10)\n"
        "print([limiter.try_take('a', 0) for _ in range(3)])\n"
        "print([module.__file__ for module in (limiters, sched_adapter, conformance)])\n"
        "print({'vllm', 'torch'} & set(sys.modules))\n"
    )
    # -I: neither the working directory nor PYTHONPATH can lend a module.
    run = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    taken, files, loaded = run.stdout.splitlines()
    assert taken == "[True, True, False]"
    installed = Path(sysconfig.get_path("purelib"))
    assert files == str([str(installed / package / "__init__.py") for package in PACKAGES])
    assert loaded == "set()"
