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


def test_a_new_ledger_owes_nothing_and_knows_no_step() -> None:
    ledger = Ledger()
    assert ledger.deliver(1) is None
    assert (ledger.failed_open, ledger.accounts, ledger.total()) == (0, {}, Account())


def test_one_requests_abort_does_not_make_anothers_chunk_a_token() -> None:
    ledger = Ledger()
    dispatched(ledger, 1, "r", "s", chunks=("t",))
    assert ledger.lose("r", "a") == 1
    assert ledger.lose("t", "a") == 0
    assert ledger.of("a").in_flight == 1


def test_an_account_opened_anew_is_not_closed_for_an_earlier_leaving() -> None:
    ledger = Ledger()
    dispatched(ledger, 1, "r")
    ledger.deliver(1)
    ledger.leave("a")
    assert ledger.accounts == {}
    dispatched(ledger, 2, "s")
    ledger.deliver(2)
    ledger.fold()
    assert ledger.accounts == {"a": Account(charged=1, dispatched=1, delivered=1)}


def test_steps_that_book_the_same_object_again_count_each_time() -> None:
    ledger, batch, other = Ledger(), Counter(a=2, b=1), Counter(b=5)
    for step, sampled in enumerate((batch, batch, other, batch)):
        ledger.charge(sampled)
        ledger.dispatch(step, {}, (), sampled)
    assert ledger.charged == ledger.dispatched == Counter(a=6, b=8)
    ledger.charge(batch)
    assert ledger.charged == Counter(a=8, b=9), "asked for in between"
    for step in range(4):
        ledger.deliver(step)
    assert ledger.delivered == Counter(a=6, b=8)


def test_a_loss_is_of_one_step_though_others_book_the_same_object() -> None:
    ledger, batch = Ledger(), Counter(a=1, b=1)
    for step in range(2):
        ledger.dispatch(step, {"r": 1, "s": 1}, (), batch)
    ledger.deliver(0)
    ledger.charge(batch)
    assert ledger.lose("r", "a") == 1
    assert (ledger.charged, ledger.dispatched) == (Counter(a=1, b=1), Counter(a=2, b=2))
    ledger.deliver(1)
    assert ledger.delivered == Counter(a=1, b=2)


def test_what_was_lost_opens_no_account_when_its_step_is_delivered() -> None:
    ledger = Ledger()
    dispatched(ledger, 1, "r")
    ledger.lose("r", "a")
    ledger.leave("a")
    ledger.deliver(1)
    assert ledger.accounts == {}
