"""The surface is complete: what this package takes from vLLM stands in its table."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="compares the table with vLLM's classes")

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

import sched_adapter
from sched_adapter import surface
from sched_adapter.scheduler import AsyncOutputRateScheduler

TABLE = surface.FRONT | surface.ENGINE
SOURCES = sorted(Path(sched_adapter.__file__).parent.glob("*.py"))


def test_nothing_leaned_on_is_missing_in_this_vllm() -> None:
    assert surface.problems() == []


@pytest.mark.parametrize(
    ("path", "wanted", "fault"),
    [
        ("no_such_module:X", "", "ModuleNotFoundError"),
        ("vllm.v1.core.sched.scheduler:Schedule", "", "AttributeError"),
        ("vllm.v1.core.sched.scheduler:Scheduler.schedule", "self other", "takes"),
        ("vllm.v1.core.sched.scheduler:Scheduler.schedule(parameters)", "other", "has no other"),
        ("vllm.v1.core.sched.scheduler:Scheduler.__init__(uses)", "nowhere", "has no nowhere"),
        ("vllm.config.scheduler:SchedulerConfig(field)", "nowhere", "has no nowhere"),
    ],
)
def test_the_surface_notices(path: str, wanted: str, fault: str) -> None:
    (problem,) = surface.problems({path: wanted})
    assert fault in problem


def imports_of_vllm() -> Iterator[tuple[str, str]]:
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vllm"):
                yield from ((node.module or "", alias.name) for alias in node.names)


def test_every_import_from_vllm_is_in_the_table() -> None:
    imported = {f"{module}:{name}" for module, name in imports_of_vllm()}
    assert imported
    listed = {re.split(r"[.(]", path.split(":")[1])[0] for path in TABLE}
    assert {path.split(":")[1] for path in imported} <= listed


def test_every_method_of_the_scheduler_that_is_overridden_is_in_the_table() -> None:
    ours = [
        owner
        for owner in AsyncOutputRateScheduler.__mro__
        if owner.__module__.startswith("sched_adapter")
    ]
    stock = {*vars(Scheduler), *vars(AsyncScheduler)}
    overridden = {
        name
        for owner in ours
        for name, value in vars(owner).items()
        if name in stock and inspect.isfunction(value)
    }
    assert "schedule" in overridden
    listed = {path.rpartition(".")[2] for path in TABLE if ":Scheduler." in path}
    assert overridden <= listed


def test_every_attribute_of_the_scheduler_that_is_used_is_in_the_table() -> None:
    made = names_of_self(inspect.getsource(Scheduler))
    used = set().union(
        *(
            names_of_self(source.read_text())
            for source in SOURCES
            if source.stem in ("scheduler", "membership")
        )
    )
    leaned_on = {name for name in used & made if not hasattr(Scheduler, name)}
    assert "running" in leaned_on
    uses = TABLE["vllm.v1.core.sched.scheduler:Scheduler.__init__(uses)"].split()
    assert leaned_on <= set(uses)


def names_of_self(source: str) -> set[str]:
    return {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
