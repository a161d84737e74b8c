"""The soak's crowd without a server: who is late is counted, and hides nobody's error."""

from __future__ import annotations

import asyncio

import pytest

from conformance.endpoint.trace import Ask, Stream
from gpu_e2e.soak import crowd
from gpu_e2e.soak.visits import Visit


class Endless:
    """A client whose streams never end, but for those of the sessions in `errors`."""

    def __init__(self, **errors):
        self.errors = errors

    def start(self, ask):
        async def follow():
            if ask.name in self.errors:
                raise self.errors[ask.name]
            await asyncio.Event().wait()

        return Stream(ask, 0), asyncio.create_task(follow())


# All of them come in the first millisecond of it.
SECONDS = 0.25


@pytest.fixture
def run(monkeypatch):
    """Let a crowd run for a moment, against a client, with an operator."""

    def session(seed, number, limits):
        return [Visit("full", Ask("u", "p", 1, f"n{number}"), 1)]

    def start(client, operate=None, sample=dict):
        async def idle(self, driver, end):
            pass

        monkeypatch.setattr(crowd.Crowd, "_operate", operate or idle)
        found = crowd.Crowd(SECONDS, {}, 1)
        return found, lambda: asyncio.run(asyncio.wait_for(found.run(client, sample), 30))

    monkeypatch.setattr(crowd, "session", session)
    monkeypatch.setattr(crowd, "SAMPLE_S", 0.01)
    monkeypatch.setattr(crowd, "DRAIN_S", 0.01)
    return start


def test_those_who_never_end_are_counted_and_are_no_error(run):
    found, go = run(Endless())
    go()
    assert found.unfinished == found.sessions == found.most_at_once == crowd.SESSIONS


def test_an_error_shows_although_others_are_late(run):
    found, go = run(Endless(n3=RuntimeError("a broken client")))
    with pytest.raises(RuntimeError, match="a broken client"):
        go()
    assert found.unfinished == crowd.SESSIONS - 1


def test_who_is_cancelled_without_being_late_is_an_error(run):
    found, go = run(Endless(n3=asyncio.CancelledError()))
    with pytest.raises(asyncio.CancelledError):
        go()
    assert found.unfinished == crowd.SESSIONS - 1


async def breaks(self, driver, end):
    raise RuntimeError("a broken operator")


def unreadable():
    raise OSError("no such process")


def test_an_error_of_the_operator_or_the_watch_shows_too(run):
    with pytest.raises(RuntimeError, match="operator"):
        run(Endless(), operate=breaks)[1]()
    with pytest.raises(OSError, match="no such process"):
        run(Endless(), sample=unreadable)[1]()
