"""The ledger's columns, one step at a time."""

from __future__ import annotations

from collections import Counter

from sched_adapter.ledger import Account, Ledger


def dispatched(ledger: Ledger, key: int, *requests: str, chunks: tuple[str, ...] = ()) -> None:
    """A step that was charged exactly what it samples; all requests are the user's `a`."""
    tokens = len(requests)
    ledger.charged["a"] += tokens
    scheduled = dict.fromkeys((*requests, *chunks), 1)
    ledger.dispatch(key, scheduled, chunks, Counter(a=tokens))


def test_in_flight_until_delivered() -> None:
    ledger = Ledger()
    dispatched(ledger, 1, "r", "s")
    assert (ledger.of("a").in_flight, ledger.of("a").delivered) == (2, 0)
    ledger.deliver(1)
    assert (ledger.of("a").in_flight, ledger.of("a").delivered) == (0, 2)
    assert ledger.flights == {}


def test_an_abort_loses_what_is_in_flight_once_and_only_the_sampled() -> None:
    ledger = Ledger()
    dispatched(ledger, 1, "r", "s")
    dispatched(ledger, 2, "r", chunks=("s",))
    assert ledger.lose("r", "a") == 2
    assert ledger.lose("r", "a") == 0
    assert ledger.lose("s", "a") == 1  # its chunk in step 2 samples nothing
    for step in (1, 2):
        ledger.deliver(step)
    assert ledger.of("a") == Account(charged=3, dispatched=3, delivered=0, lost=3)
    assert ledger.of("a").balanced


def test_an_unbalanced_account_says_so() -> None:
    assert not Account(charged=3, refunded=1, dispatched=3).balanced
    assert not Account(charged=1, dispatched=1, delivered=1, lost=1).balanced


def test_an_account_closes_when_its_user_left_and_nothing_is_in_flight() -> None:
    ledger = Ledger()
    dispatched(ledger, 1, "r")
    ledger.leave("a")
    assert "a" in ledger.accounts
    ledger.deliver(1)
    ledger.fold()
    assert ledger.accounts == {}
    assert ledger.total() == Account(charged=1, dispatched=1, delivered=1)


def test_a_user_who_comes_back_keeps_the_account() -> None:
    ledger = Ledger()
    dispatched(ledger, 1, "r")
    ledger.leave("a")
    ledger.stay("a")
    ledger.deliver(1)
    ledger.fold()
    assert ledger.of("a").delivered == 1
