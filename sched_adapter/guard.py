"""A backend that somebody else wrote, held at arm's length.

A limiter that raises, answers nonsense or dawdles costs one line in the log,
never the engine or another user's request.  What its users get meanwhile is one
choice (``on_fault``): ``open``, they go on unlimited, or ``closed``, they wait.
Built-in backends are not wrapped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from limiters import Limiter

logger = logging.getLogger("vllm.output_rate")

#: A verb that takes longer than this, in ns, is told in the log once.
SLOW_NS = 5_000_000

#: After a fault under ``closed``, the user is asked again this much later, in ns.
RETRY_NS = 50_000_000


class LimiterFault(Exception):
    """The backend did not answer, or not with an answer that there is."""


class Guard:
    """The verbs that a step uses, each with its answer checked.

    ``try_take`` and ``try_take_many`` raise LimiterFault; the other verbs fall
    back on an answer that is safe.
    """

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._told: set[str] = set()

    def try_take(self, user: str, now_ns: int) -> bool:
        return self._ask("try_take", _is_bool, user, now_ns)

    def try_take_many(self, user: str, count: int, now_ns: int) -> int:
        def fits(answer: Any) -> bool:
            return _is_int(answer) and 0 <= answer <= count

        return self._ask("try_take_many", fits, user, count, now_ns)

    def refund(self, user: str, now_ns: int) -> None:
        self._or(None, "refund", _is_anything, user, now_ns)

    def ready_at_ns(self, user: str, now_ns: int) -> int:
        def fits(answer: Any) -> bool:
            return _is_int(answer) and answer >= now_ns

        return self._or(now_ns + RETRY_NS, "ready_at_ns", fits, user, now_ns)

    def cleanup_idle_users(self, now_ns: int) -> None:
        self._or(None, "cleanup_idle_users", _is_anything, now_ns)

    def end_step(self, start_ns: int, now_ns: int) -> None:
        self._or(None, "end_step", _is_anything, start_ns, now_ns)

    def rate_of(self, user: str) -> Any:
        # Limits were asked for: who cannot be told from an unlimited user is limited.
        return self._or(0, "rate_of", _is_anything, user)

    def __len__(self) -> int:
        return self._or(0, "__len__", _is_int)

    def _or(self, otherwise: Any, verb: str, fits: Callable[[Any], bool], *args: Any) -> Any:
        try:
            return self._ask(verb, fits, *args)
        except LimiterFault:
            return otherwise

    def _ask(self, verb: str, fits: Callable[[Any], bool], *args: Any) -> Any:
        start_ns = time.monotonic_ns()
        try:
            answer = getattr(self._limiter, verb)(*args)
        except Exception as error:
            self._tell(verb, f"raised {type(error).__name__}: {error}")
            raise LimiterFault(verb) from error
        took_ns = time.monotonic_ns() - start_ns
        if took_ns > SLOW_NS:
            self._tell("slow", f"took {took_ns / 1e6:.0f} ms in {verb}, which every step waits for")
        if not fits(answer):
            self._tell(verb, f"answered {answer!r:.100}")
            raise LimiterFault(verb)
        return answer

    def _tell(self, kind: str, what: str) -> None:
        if kind not in self._told:
            self._told.add(kind)
            logger.error(
                "Output rate limiter %s %s%s; told once. Mend the backend or choose another with "
                "--output-rate-limiter.",
                type(self._limiter).__name__,
                "" if kind == "slow" else f"{kind} ",
                " ".join(what.split()),
            )


def guarded(limiter: Limiter) -> Limiter | Guard:
    """The limiter itself if it is built in, else behind a guard."""
    return limiter if type(limiter).__module__.startswith("limiters.") else Guard(limiter)


def _is_bool(answer: Any) -> bool:
    return isinstance(answer, bool)


def _is_int(answer: Any) -> bool:
    return isinstance(answer, int) and not isinstance(answer, bool)


def _is_anything(answer: Any) -> bool:
    return True
