"""A rate changes while its user's streams run or sleep: the next step goes by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.contract import Contract
from conformance.engine import ScriptedEngine
from sched_adapter.record import Recorder, read
from sched_adapter.tests.pressure.house import (
    MS,
    NEVER,
    SECOND,
    check_books,
    check_whole,
    house,
)


def asleep(depth: int, backend: Contract, **limits: object) -> ScriptedEngine:
    """Users u and v with two streams each, v unlimited; u sleeps."""
    engine = house(depth, backend, **{"rates": {"u": NEVER}, "max_model_len": 4096, **limits})
    for name in ("u0", "v0", "u1", "v1"):
        engine.add(name, user=name[0], prompt=3, max_tokens=2000, ignore_eos=True)
    engine.run(6)
    engine.step(SECOND)
    assert served(engine, 3) == 0
    assert engine.scheduler.turns.users["u"].ready_ns is not None
    return engine


def served(engine: ScriptedEngine, steps: int, user: str = "u") -> int:
    """The user's tokens in the next steps."""
    before = len(engine.history.dispatches(user))
    engine.run(steps)
    return len(engine.history.dispatches(user)) - before


def check_tokens(engine: ScriptedEngine) -> None:
    """What is in the books of those who are limited now is whole, and so is every stream."""
    ledger = engine.scheduler.ledger
    assert all(account.balanced for account in ledger.accounts.values())
    check_whole(engine)


def test_a_raise_wakes_the_sleeper_in_the_next_step(depth: int, backend: Contract) -> None:
    engine = asleep(depth, backend)
    engine.scheduler.set_rate("u", 1000)
    assert engine.scheduler.output_rate_wait_s() == 0
    engine.step(SECOND)  # from no level at all, with quota at 1000/s
    assert served(engine, 10) == 20
    check_books(engine)
    check_tokens(engine)


def test_a_raise_ends_the_engine_s_wait(depth: int, backend: Contract) -> None:
    engine = house(depth, backend, rates={"u": NEVER})
    engine.add("u0", user="u", prompt=3, max_tokens=20, ignore_eos=True)
    engine.run(6)
    assert engine.scheduler.output_rate_wait_s() > 0
    engine.scheduler.set_rate("u", 1000)
    assert engine.scheduler.output_rate_wait_s() == 0


def test_a_cut_is_obeyed_at_once(depth: int, backend: Contract) -> None:
    engine = house(depth, backend, rates={"u": 1000}, max_model_len=4096)
    engine.add("u0", user="u", prompt=3, max_tokens=2000, ignore_eos=True)
    engine.run(20)
    assert served(engine, 5) == 5
    engine.scheduler.set_rate("u", 10)
    got = served(engine, 100)  # a second
    assert got <= 12
    assert got >= 9
    check_books(engine)
    check_tokens(engine)


def test_a_cut_of_a_sleeper_lets_it_sleep_longer(depth: int, backend: Contract) -> None:
    engine = asleep(depth, backend, rates={"u": "1/3"})
    engine.scheduler.set_rate("u", NEVER)
    assert served(engine, 1000) == 0
    check_books(engine)


@pytest.mark.parametrize("own", [True, False], ids=["own rate", "default"])
def test_no_limit_any_more_and_a_limit_again(depth: int, backend: Contract, own: bool) -> None:
    """With streams running: `None` is the default rate again, and no default is no limit."""
    limits = {"rates": {"u": NEVER}} if own else {"rates": {"v": 10_000}, "default_rate": NEVER}
    engine = asleep(depth, backend, **limits)
    scheduler = engine.scheduler
    user = scheduler.turns.users["u"]

    def change(rate: object) -> None:
        if own:
            scheduler.set_rate("u", rate)
        else:
            scheduler.set_default_rate(rate)

    charged = scheduler.ledger.charged["u"]
    change(None)
    assert not user.limited
    assert user not in scheduler.turns.limited_awake
    assert served(engine, 20) == 40
    assert scheduler.ledger.charged["u"] == charged, "who has no limit is charged nothing"
    change(20)
    assert user.limited
    assert user in scheduler.turns.limited_awake
    got = served(engine, 100)
    assert 18 <= got <= 23
    seen = scheduler.ledger.charged["u"] - scheduler.ledger.refunded["u"] - charged
    assert seen == got, "who has one again is charged each token"
    change(None)
    assert served(engine, 20) == 40
    assert served(engine, 20, "v") == 40, "nobody else notices"
    check_tokens(engine)
    for name in engine.requests:
        engine.abort(name)
    engine.drain()
    assert scheduler.ledger.departed.balanced
    assert not engine.leaks()
    assert not scheduler.turns.limited_awake
    assert not scheduler.turns.asleep


def test_the_record_tells_from_when_on(depth: int, backend: Contract, tmp_path: Path) -> None:
    engine = asleep(depth, backend)
    books = engine.scheduler.books
    books.recorder = Recorder(tmp_path / "record.jsonl", {})
    engine.scheduler.set_rate("u", "0.5")
    with pytest.raises(ValueError, match="above zero"):
        engine.scheduler.set_rate("u", 0)
    engine.step(SECOND)
    engine.scheduler.set_rate("u", None)
    engine.scheduler.set_default_rate(7)
    books.close()
    told = [event for event in read(tmp_path / "record.jsonl") if event["e"] == "rate"]
    assert [(event["user"], event["rate"]) for event in told] == [
        ("u", "1/2"),
        ("u", None),
        (None, "7"),
    ]
    assert told[1]["ns"] == told[2]["ns"] == engine.clock()
    assert told[0]["ns"] < told[1]["ns"]


def test_a_bad_rate_changes_nothing(depth: int, backend: Contract) -> None:
    engine = asleep(depth, backend)
    for rate in (0, -1, "x", True):
        with pytest.raises((TypeError, ValueError)):
            engine.scheduler.set_rate("u", rate)
        with pytest.raises((TypeError, ValueError)):
            engine.scheduler.set_default_rate(rate)
    assert engine.scheduler.turns.users["u"].ready_ns is not None
    engine.scheduler.set_rate("nobody here", 5)
    assert served(engine, 3) == 0


def test_a_thousand_changes_leave_no_alarms_behind(backend: Contract) -> None:
    engine = asleep(1, backend)
    for n in range(1000):
        engine.scheduler.set_rate("u", f"1/{1_000_000 + n}")
        engine.step(MS)
    assert len(engine.scheduler.turns._alarms) < 100
