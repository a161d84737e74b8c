"""A third party's limiter that fails for one user, in one verb, until it is mended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from limiters import Limiter, make_limiter

#: What each verb answers that is no answer. (`rate_of` and `refund` have none: all is taken.)
NONSENSE: dict[str, Callable[..., Any]] = {
    "try_take": lambda user, now_ns: 1,
    "try_take_many": lambda user, count, now_ns: count + 1,
    "ready_at_ns": lambda user, now_ns: now_ns - 1,
}

TAKES = ("try_take", "try_take_many")
VERBS = (*TAKES, "refund", "ready_at_ns", "rate_of", "cleanup_idle_users", "end_step")


class Faulty(Limiter):
    """GCRA but for `verb`, which raises, answers nonsense or takes long for the user `victim`.

    Verbs without a user fail for everybody. `made[-1]` is the latest; set `broken` to mend it.
    """

    made: list[Faulty] = []  # noqa: RUF012

    #: Called by a slow verb.
    dawdle: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, *, verb: str, how: str, victim: str, **settings: Any) -> None:
        super().__init__(**settings)
        self.inner = make_limiter("gcra", **settings)
        self.verb, self.how, self.victim = verb, how, victim
        self.broken = True
        self.failures = 0
        Faulty.made.append(self)

    def _ask(self, verb: str, *args: Any) -> Any:
        concerned = args[0] == self.victim if isinstance(args[0], str) else True
        if self.broken and verb == self.verb and concerned:
            self.failures += 1
            if self.how == "raise":
                raise ConnectionError("the quota service\nhas gone")
            if self.how == "nonsense":
                return NONSENSE[verb](*args)
            Faulty.dawdle()
        return getattr(self.inner, verb)(*args)

    def try_take(self, user: str, now_ns: int) -> bool:
        return self._ask("try_take", user, now_ns)  # type: ignore[no-any-return]

    def try_take_many(self, user: str, count: int, now_ns: int) -> int:
        return self._ask("try_take_many", user, count, now_ns)  # type: ignore[no-any-return]

    def refund(self, user: str, now_ns: int) -> None:
        self._ask("refund", user, now_ns)

    def available(self, user: str, now_ns: int) -> int:
        return self._ask("available", user, now_ns)  # type: ignore[no-any-return]

    def ready_at_ns(self, user: str, now_ns: int) -> int:
        return self._ask("ready_at_ns", user, now_ns)  # type: ignore[no-any-return]

    def rate_of(self, user: str) -> Any:
        return self._ask("rate_of", user)

    def cleanup_idle_users(self, now_ns: int) -> int:
        return self._ask("cleanup_idle_users", now_ns)  # type: ignore[no-any-return]

    def end_step(self, start_ns: int, now_ns: int) -> None:
        self._ask("end_step", start_ns, now_ns)

    def __len__(self) -> int:
        return len(self.inner)
