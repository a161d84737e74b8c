"""A limiter that writes down what it is asked, for rules about when a limiter is asked at all.

A scheduler finds it by name, as any third-party backend; it answers as the backend does that it
stands for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from limiters import Limiter, make_limiter

__all__ = ["Call", "SpyLimiter"]


class Call(NamedTuple):
    verb: str
    user: str | None
    now_ns: int | None
    count: int
    answer: Any


class SpyLimiter(Limiter):
    """Hands every call on to the limiter named `backend` and keeps it in `calls`."""

    made: list[SpyLimiter] = []  # noqa: RUF012  # all of them, the last one last

    def __init__(self, *, backend: str, backend_options: Mapping[str, Any], **settings: Any):
        super().__init__(**settings)
        self.calls: list[Call] = []
        self.inner = make_limiter(backend, **settings, **backend_options)
        SpyLimiter.made.append(self)

    def _note(
        self, verb: str, user: str | None, now_ns: int | None, answer: Any, count: int = 1
    ) -> Any:
        self.calls.append(Call(verb, user, now_ns, count, answer))
        return answer

    def try_take(self, user: str, now_ns: int) -> bool:
        return self._note("try_take", user, now_ns, self.inner.try_take(user, now_ns))

    def try_take_many(self, user: str, count: int, now_ns: int) -> int:
        taken = self.inner.try_take_many(user, count, now_ns)
        return self._note("try_take_many", user, now_ns, taken, count)

    def try_take_all(self, users: list[str], now_ns: int) -> bool:
        took = self.inner.try_take_all(users, now_ns)
        for user in users if took else ():
            self._note("try_take", user, now_ns, True)
        return took

    def refund(self, user: str, now_ns: int) -> None:
        return self._note("refund", user, now_ns, self.inner.refund(user, now_ns))

    def available(self, user: str, now_ns: int) -> int:
        return self._note("available", user, now_ns, self.inner.available(user, now_ns))

    def ready_at_ns(self, user: str, now_ns: int) -> int:
        return self._note("ready_at_ns", user, now_ns, self.inner.ready_at_ns(user, now_ns))

    def cleanup_idle_users(self, now_ns: int) -> int:
        return self._note("cleanup_idle_users", None, now_ns, self.inner.cleanup_idle_users(now_ns))

    def __len__(self) -> int:
        return len(self.inner)
