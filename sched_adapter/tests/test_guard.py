"""A backend that fails costs a line in the log, not the engine."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from limiters import make_limiter
from sched_adapter.guard import RETRY_NS, Guard, LimiterFault, guarded


class Odd:
    """Answers every verb with the same thing, or raises it."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __getattr__(self, verb: str) -> Any:
        def ask(*_: Any) -> Any:
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        return ask


@pytest.mark.parametrize("answer", [KeyError("x"), None, "yes", -1, 4, 1.0, True])
def test_no_answer_or_nonsense_is_a_fault(answer: Any) -> None:
    with pytest.raises(LimiterFault):
        Guard(Odd(answer)).try_take_many("a", 3, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", [RuntimeError("x"), None, 1, "no"])
def test_a_single_take_is_true_or_false(answer: Any) -> None:
    with pytest.raises(LimiterFault):
        Guard(Odd(answer)).try_take("a", 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", [OSError("gone"), None, 99, 100, 1e9])
def test_an_instant_that_is_not_to_come_becomes_a_retry(answer: Any) -> None:
    guard = Guard(Odd(answer))  # type: ignore[arg-type]
    assert guard.ready_at_ns("a", 100) == 100 + RETRY_NS


def test_the_other_verbs_never_raise() -> None:
    guard = Guard(Odd(ZeroDivisionError("x")))  # type: ignore[arg-type]
    guard.refund("a", 0)
    guard.cleanup_idle_users(0)
    guard.end_step(0, 1)
    assert guard.rate_of("a") is not None  # still limited


def test_who_had_no_answer_is_asked_again_later_whatever_the_backend_says() -> None:
    class Half(Odd):
        def ready_at_ns(self, user: str, now_ns: int) -> int:
            return now_ns + 1

    guard = Guard(Half(OSError("gone")))  # type: ignore[arg-type]
    for now in (0, 70):
        with pytest.raises(LimiterFault):
            guard.try_take("a", now)
        assert guard.ready_at_ns("a", now) == now + RETRY_NS
        assert guard.ready_at_ns("b", now) == now + 1
    assert guard.ready_at_ns("a", 80) == 81


class Unshowable(Exception):
    def __str__(self) -> str:
        raise ValueError

    __repr__ = __str__


@pytest.mark.parametrize("answer", [Unshowable(), Unshowable])
def test_not_even_the_text_of_a_fault_is_trusted(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    guard = Guard(Odd(answer() if answer is Unshowable else answer))  # type: ignore[arg-type]
    with pytest.raises(LimiterFault):
        guard.try_take("a", 0)
    assert "Unshowable" in caplog.text


@pytest.mark.parametrize(("policy", "get"), [("open", "without a limit"), ("closed", "wait")])
def test_a_fault_is_told_once_in_one_line(
    policy: str, get: str, caplog: pytest.LogCaptureFixture
) -> None:
    guard = Guard(Odd(ValueError("two\nlines")), policy)  # type: ignore[arg-type]
    with caplog.at_level(logging.ERROR):
        for now in range(5):
            with pytest.raises(LimiterFault):
                guard.try_take("a", now)
            guard.ready_at_ns("a", now)
            guard.refund("a", now)
    (record,) = caplog.records
    assert f"on-fault {policy}" in record.getMessage()
    assert get in record.getMessage()
    assert "Odd" in record.getMessage()
    assert "two lines" in record.getMessage()
    assert "\n" not in record.getMessage()


def test_built_in_backends_are_not_wrapped() -> None:
    for name in ("gcra", "token_bucket", "rolling_window"):
        limiter = make_limiter(name, default_rate=1)
        assert guarded(limiter) is limiter
    auto = make_limiter("gcra", default_rate=1, auto_burst=True)
    assert guarded(auto) is auto


def test_somebody_elses_is() -> None:
    from limiters import Gcra

    class Mine(Gcra):
        pass

    assert isinstance(guarded(Mine(default_rate=1)), Guard)
