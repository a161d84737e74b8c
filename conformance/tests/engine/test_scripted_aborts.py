"""An abort in every state a request can be in leaves nothing behind."""

import pytest

from conformance.engine import ScriptedEngine, pending_grammar


def company(engine):
    for i in range(3):
        engine.add(f"other{i}", user="other", prompt=6, max_tokens=12)


def running(engine):
    engine.add("r", user="u", max_tokens=20)
    engine.run(4)


def waiting(engine):
    for i in range(8):
        engine.add(f"full{i}", max_tokens=4)
    engine.add("r", user="u", max_tokens=20)
    engine.step()
    assert engine.requests["r"].admitted_ns is None


def untouched(engine):
    engine.add("r", user="u", max_tokens=20)


def prefilling(engine):
    engine.add("r", user="u", prompt=150, max_tokens=20)
    engine.step()
    assert engine.history.steps[-1].scheduled["r"] < 150


def just_sampled(engine):
    engine.add("r", user="u", max_tokens=20)
    engine.step()
    assert "r" in engine.history.steps[-1].sampled


def preempted(engine):
    engine.add("r", user="u", max_tokens=20)
    engine.run(4)
    engine.pause()
    engine.reset_prefix_cache()


def compiling(engine):
    engine.add("r", user="u", grammar=pending_grammar(), max_tokens=20)
    engine.step()


def structured(engine):
    engine.add("r", user="u", grammar=15, max_tokens=20)
    engine.run(4)


def paused(engine):
    running(engine)
    engine.pause()
    engine.run(3)


def session_between_turns(engine):
    engine.add("r", user="u", max_tokens=2, resumable=True)
    engine.run(6)
    assert len(engine.requests["r"].turns) == 1


STATES = [
    running,
    waiting,
    untouched,
    prefilling,
    just_sampled,
    preempted,
    compiling,
    structured,
    paused,
    session_between_turns,
]


@pytest.mark.parametrize("late", [False, True], ids=["between-steps", "in-flight"])
@pytest.mark.parametrize("state", STATES, ids=lambda f: f.__name__)
def test_abort(depth, state, late, finish):
    engine = ScriptedEngine(depth=depth)
    company(engine)
    state(engine)
    log = engine.requests["r"]
    before = len(log.tokens)
    engine.abort("r", in_flight=late)
    if late:
        engine.step()
    assert log.finish_reason == "abort"
    engine.resume()
    if isinstance(log.grammar, int):
        assert log.tokens == engine.expected("r")[:before]
    log.grammar = log.grammar or (0 if state is compiling else None)
    finish(engine)
    assert len(log.tokens) == before, "a token came after the abort"
    assert set(log.lost) <= {"abort"}
    if late and state in (running, structured):
        assert log.lost["abort"] == depth, "the step under way is lost, and at depth 2 the next"


def test_abort_of_all_frees_all_at_once(depth):
    engine = ScriptedEngine(depth=depth)
    company(engine)
    engine.run(4)
    engine.abort(*engine.requests)
    # Before any further step: places and blocks are free.
    assert [leak for leak in engine.leaks() if not leak.startswith(("worker", "steps"))] == []
    engine.drain()
    assert engine.leaks() == []


def test_abort_of_a_finished_request_changes_nothing(depth, finish):
    engine = ScriptedEngine(depth=depth)
    engine.add("r", max_tokens=2)
    finish(engine)
    engine.abort("r")
    assert engine.requests["r"].finish_reason == "length"
    finish(engine)
