"""What a step of the scheduler costs: vLLM's own and ours over the same crowd."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from benchmarks import scenes
from benchmarks.scenes import Scene
from conformance.engine import STOCK

RESIDENTS = (16, 64, 256, 1024)
THROTTLED = (0, 50, 95)
"""Percent of the residents."""
WAITING = (10, 100, 1_000, 10_000)
USERS = (1, 16, 256)
FEW = 51
"""Eligible residents of the largest crowds: 5 % of 1,024."""


def loads(depth: int) -> dict[str, Scene]:
    """Residents by how many of them are out of quota."""
    return {
        f"{n} resident, {percent} % throttled": Scene(n, n * percent // 100, depth=depth)
        for n in RESIDENTS
        for percent in THROTTLED
    }


def users(depth: int) -> dict[str, Scene]:
    """256 residents, no limit reached, by how many users they belong to."""
    return {f"256 resident of {n} users": Scene(256, users=n, depth=depth) for n in USERS}


def queues(depth: int) -> dict[str, Scene]:
    """By how many requests of a user out of quota wait."""
    return {f"{n} waiting": Scene(48, waiting=n, depth=depth) for n in WAITING}


def crowds() -> dict[str, Scene]:
    """The same few eligible among ten times as many residents (of one mode: it takes seconds)."""
    return {f"{n} resident, {FEW} of them eligible": Scene(n, n - FEW) for n in (1_024, 10_240)}


def all_scenes() -> Iterator[tuple[str, Scene]]:
    for depth in (1, 2):
        for some in (loads(depth), users(depth), queues(depth), crowds() if depth == 1 else {}):
            for name, scene in some.items():
                yield f"{scene.mode}, {name}", scene


def measure() -> dict[str, int]:
    """All counts of a step by name. Stock is counted with nobody but the eligible."""
    logging.disable(logging.WARNING)  # what vLLM says about each config that it is given
    counts: dict[str, int] = {}
    stock: dict[Scene, int] = {}
    for name, scene in all_scenes():
        alone = scene.of_stock()
        if alone not in stock:
            stock[alone] = scenes.opcodes(scenes.engine(alone, STOCK), alone)
        counts[f"{name}: stock"] = stock[alone]
        counts[f"{name}: adapter"] = scenes.opcodes(scenes.engine(scene), scene)
    counts.update(measure_calls())
    return counts


def measure_calls() -> dict[str, int]:
    """What the limiter is asked in 100 steps, by verb."""
    counts: dict[str, int] = {}
    for depth in (1, 2):
        scene = Scene(256, users=64, depth=depth)
        for name, rate in (("not reached", scenes.NOT_REACHED), ("20/s each", 20)):
            for verb, asked in scenes.calls(scene, rate, steps=100).items():
                counts[f"{scene.mode}, 256 resident of 64 users, {name}, 100 steps: {verb}"] = asked
    return counts
