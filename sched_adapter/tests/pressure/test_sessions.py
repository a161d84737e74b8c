"""A streaming session that is preempted while the last token of its turn is under way.

vLLM 0.32.0 loses it (a strict xfail in the tests of the scripted engine). With limits sessions
are preempted more often than without, so here it goes on, and with all of its context.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.contracts import GCRA
from conformance.engine import ScriptedEngine
from sched_adapter.tests.pressure.house import check_books, check_bounds, check_whole, house

NEXT = [20, 21]


def crowded(prefix_caching: bool, **settings: Any) -> ScriptedEngine:
    """Without limits: two requests grow into five blocks until the later one gives way."""
    engine = house(2, num_blocks=5, prefix_caching=prefix_caching, **settings)
    engine.add("other", user="B", prompt=3, max_tokens=14)
    engine.add("s", user="A", prompt=4, max_tokens=6, resumable=True)
    return engine


def throttled(prefix_caching: bool) -> ScriptedEngine:
    """The session is out of quota with its last token, and a newcomer takes its blocks."""
    engine = house(2, rates={"A": 5}, num_blocks=6, prefix_caching=prefix_caching)
    engine.add("s", user="A", prompt=9, max_tokens=1, resumable=True, ignore_eos=True)
    engine.step()
    engine.add("other", user="B", prompt=15, max_tokens=3, ignore_eos=True)
    return engine


def until_its_turn_ends(engine: ScriptedEngine) -> None:
    for _ in range(60):
        if engine.requests["s"].turns:
            break
        engine.step()
    assert engine.requests["s"].preemptions == 1


@pytest.mark.parametrize("prefix_caching", [False, True])
@pytest.mark.parametrize("begin", [crowded, throttled])
@pytest.mark.parametrize("fed", ["before", "after"])
def test_it_goes_on_with_all_of_its_context(
    begin: Callable[[bool], ScriptedEngine], fed: str, prefix_caching: bool
) -> None:
    engine = begin(prefix_caching)
    if fed == "before":
        engine.feed("s", NEXT, max_tokens=3)
    until_its_turn_ends(engine)
    if fed == "after":
        engine.run(3)
        assert engine.scheduler.turns.users["A"].queued == 0
        engine.feed("s", NEXT, max_tokens=3)
    engine.run(100)
    assert [len(tokens) for _, tokens in engine.requests["s"].turns][1:] == [3]
    assert engine.scheduler.turns.users["A"].queued == 0
    engine.close("s")
    engine.drain()
    assert not engine.leaks()
    check_whole(engine)
    check_books(engine)
    check_bounds(engine, GCRA)


@pytest.mark.parametrize("begin", [crowded, throttled])
@pytest.mark.parametrize("how", ["closed before", "closed after", "aborted"])
def test_it_ends_when_it_is_closed(begin: Callable[[bool], ScriptedEngine], how: str) -> None:
    engine = begin(False)
    if how == "closed before":
        engine.close("s")
    until_its_turn_ends(engine)
    engine.step()
    if how == "closed after":
        engine.close("s")
    elif how == "aborted":
        engine.abort("s")
    assert engine.requests["s"].finished
    assert "A" not in engine.scheduler.turns.users
    engine.drain()
    assert not engine.leaks()
    check_whole(engine)


def test_its_next_input_may_be_of_another_user() -> None:
    """Each input names its user; the lines of both stay whole, also that of the one it leaves."""
    engine = crowded(prefix_caching=False, max_num_seqs=2)
    engine.add("a", user="A", prompt=12, max_tokens=2)
    engine.requests["s"].user = "C"
    engine.feed("s", NEXT, max_tokens=3)
    until_its_turn_ends(engine)
    queued = {name: user.queued for name, user in engine.scheduler.turns.users.items()}
    assert queued == {"A": 1, "B": 0, "C": 1}
    engine.run(100)
    assert len(engine.requests["s"].turns) == 2
    engine.close("s")
    engine.drain()
    assert not engine.leaks()
    assert not engine.scheduler.turns.users
