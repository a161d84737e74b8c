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
from limiters.rate import RateLike

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

    def __init__(self, limiter: Limiter, on_fault: str = "open") -> None:
        self._limiter = limiter
        self._on_fault = on_fault
        self._told: set[str] = set()
        # Whom no answer was had for, at the instant of the last question.
        self._unanswered: set[str] = set()
        self._instant_ns: int | None = None

    def try_take(self, user: str, now_ns: int) -> bool:
        return self._take("try_take", _is_bool, user, user, now_ns)

    def try_take_many(self, user: str, count: int, now_ns: int) -> int:
        def fits(answer: Any) -> bool:
            return _is_int(answer) and 0 <= answer <= count

        return self._take("try_take_many", fits, user, user, count, now_ns)

    def _take(self, verb: str, fits: Callable[[Any], bool], user: str, *args: Any) -> Any:
        if args[-1] != self._instant_ns:
            self._instant_ns = args[-1]
            self._unanswered.clear()
        try:
            return self._ask(verb, fits, *args)
        except LimiterFault:
            self._unanswered.add(user)
            raise

    def refund(self, user: str, now_ns: int) -> None:
        self._or(None, "refund", _is_anything, user, now_ns)

    def ready_at_ns(self, user: str, now_ns: int) -> int:
        """Asked for users that were denied at this instant, or had no answer."""
        retry_ns = now_ns + RETRY_NS
        if user in self._unanswered and now_ns == self._instant_ns:
            return retry_ns

        def fits(answer: Any) -> bool:
            # "Now" contradicts the denial, and would have the engine ask without a pause.
            return _is_int(answer) and answer > now_ns

        return self._or(retry_ns, "ready_at_ns", fits, user, now_ns)

    def cleanup_idle_users(self, now_ns: int) -> None:
        self._or(None, "cleanup_idle_users", _is_anything, now_ns)

    def end_step(self, start_ns: int, now_ns: int) -> None:
        self._or(None, "end_step", _is_anything, start_ns, now_ns)

    def rate_of(self, user: str) -> Any:
        # Limits were asked for: who cannot be told from an unlimited user is limited.
        return self._or(0, "rate_of", _is_anything, user)

    # Changes that somebody asks for, who is told where they fail.

    def set_rate(self, user: str, rate: RateLike, now_ns: int) -> None:
        self._limiter.set_rate(user, rate, now_ns)

    def unset_rate(self, user: str, now_ns: int) -> None:
        self._limiter.unset_rate(user, now_ns)

    def set_default_rate(self, rate: RateLike | None, now_ns: int) -> None:
        self._limiter.set_default_rate(rate, now_ns)

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
            self._tell("fault", f"{verb} raised {type(error).__name__}: {_shown(error, str)}")
            raise LimiterFault(verb) from error
        took_ns = time.monotonic_ns() - start_ns
        if took_ns > SLOW_NS:
            self._tell("slow", f"{verb} took {took_ns / 1e6:.0f} ms, for which every step waits")
        if not fits(answer):
            self._tell("fault", f"{verb} answered {_shown(answer)}")
            raise LimiterFault(verb)
        return answer

    def _tell(self, kind: str, what: str) -> None:
        if kind in self._told:
            return
        self._told.add(kind)
        meanwhile = ""
        if kind == "fault":
            get = "go on without a limit" if self._on_fault == "open" else "wait"
            meanwhile = (
                f" Users {get} while it gives no answer (--output-rate-on-fault {self._on_fault})."
            )
        logger.error(
            "Output rate limiter %s: %s.%s Told once. Mend the backend or choose another with "
            "--output-rate-limiter.",
            type(self._limiter).__name__,
            " ".join(what.split()),
            meanwhile,
        )


def guarded(limiter: Limiter, on_fault: str = "open") -> Limiter | Guard:
    """The limiter itself if it is built in, else behind a guard that knows the policy."""
    built_in = type(limiter).__module__.startswith("limiters.")
    return limiter if built_in else Guard(limiter, on_fault)


def _shown(answer: Any, as_text: Callable[[Any], str] = repr) -> str:
    try:
        return as_text(answer)[:100]
    except Exception:  # nor are the texts of somebody else's objects safe
        return f"(a {type(answer).__name__} that cannot be shown)"


def _is_bool(answer: Any) -> bool:
    return isinstance(answer, bool)


def _is_int(answer: Any) -> bool:
    return isinstance(answer, int) and not isinstance(answer, bool)


def _is_anything(answer: Any) -> bool:
    return True
