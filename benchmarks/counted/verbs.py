"""What one call of a limiter's verb costs: cases, each a call on a limiter made ready for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from benchmarks.opcodes import count
from limiters import Limiter, make_limiter

NS_PER_S = 1_000_000_000
CROWD = 10_000


class Backend(NamedTuple):
    """A backend with its options, and a rate."""

    name: str
    rate: int | Fraction
    options: Mapping[str, Any] = {}
    own_rates: int = 0
    """How many users have a rate of their own, which is the same for all."""

    def make(self, users: int = 0) -> Limiter:
        """A limiter in which so many users took a token at instant 0."""
        own = {f"own-{n}": self.rate for n in range(self.own_rates)}
        limiter = make_limiter(self.name, default_rate=self.rate, rates=own, **self.options)
        for n in range(users):
            assert limiter.try_take(f"other-{n}", 0)
        return limiter

    @property
    def pace_ns(self) -> int:
        """1/rate in ns, rounded up."""
        return -(-NS_PER_S // self.rate)


BACKENDS: dict[str, Backend] = {
    "gcra 10/s": Backend("gcra", 10),
    "gcra 33/s": Backend("gcra", 33),
    "gcra 10/s, others with rates of their own": Backend("gcra", 10, own_rates=100),
    "gcra 10/s, auto burst": Backend("gcra", 10, {"auto_burst": True}),
    "token_bucket 10/s": Backend("token_bucket", 10),
    "token_bucket 33/s": Backend("token_bucket", 33),
    "rolling_window 10/s": Backend("rolling_window", 10),
    "rolling_window 33/s": Backend("rolling_window", 33),
    "rolling_window 33/s, window 1 s": Backend("rolling_window", 33, {"window_ns": NS_PER_S}),
}

Call = tuple[Callable[..., Any], tuple[Any, ...]]
"""A bound verb and its arguments."""

LATER_NS = 10 * NS_PER_S


def _allowed(limiter: Limiter, user: str) -> Call:
    limiter.try_take(user, 0)
    return limiter.try_take, (user, LATER_NS)


def _in_debt(limiter: Limiter, user: str) -> Call:
    _use_up(limiter, user)
    return limiter.try_take, (user, limiter.ready_at_ns(user, 0))


def _denied(limiter: Limiter, user: str) -> Call:
    _use_up(limiter, user)
    return limiter.try_take, (user, 1)


def _first(limiter: Limiter, user: str) -> Call:
    return limiter.try_take, (user, 0)


def _many(limiter: Limiter, user: str) -> Call:
    limiter.try_take(user, 0)
    return limiter.try_take_many, (user, 2, LATER_NS)


def _many_denied(limiter: Limiter, user: str) -> Call:
    _use_up(limiter, user)
    return limiter.try_take_many, (user, 2, 1)


def _refund(limiter: Limiter, user: str) -> Call:
    _use_up(limiter, user)
    return limiter.refund, (user, 0)


def _ready(limiter: Limiter, user: str) -> Call:
    _use_up(limiter, user)
    return limiter.ready_at_ns, (user, 1)


def _available(limiter: Limiter, user: str) -> Call:
    limiter.try_take(user, 0)
    return limiter.available, (user, 1)


def _use_up(limiter: Limiter, user: str) -> None:
    limiter.try_take_many(user, limiter.available(user, 0), 0)


VERBS: dict[str, Callable[[Limiter, str], Call]] = {
    "try_take, allowed": _allowed,
    "try_take, allowed in debt": _in_debt,
    "try_take, denied": _denied,
    "try_take, a new user": _first,
    "try_take_many, allowed": _many,
    "try_take_many, denied": _many_denied,
    "refund": _refund,
    "ready_at_ns, denied": _ready,
    "available": _available,
}


def opcodes(limiter: Limiter, verb: str) -> int:
    """Instructions of one call of a verb, for a user that the limiter does not know yet."""
    for user in ("warm-up", "user"):  # see `count`: the first one may miss some
        function, args = VERBS[verb](limiter, f"{user} {verb}")
        counted = count(function, *args)
    return counted.opcodes


def opcodes_of_a_long_stay(backend: Backend) -> int:
    """Instructions of 100 takes at the user's pace, after 100 more: what a log keeps is in it."""
    limiter = backend.make()

    def take_all(first: int) -> None:
        for n in range(first, first + 100):
            limiter.try_take("user", n * backend.pace_ns)

    count(take_all, 0)
    return count(take_all, 100).opcodes


def opcodes_of_a_cleanup(backend: Backend, users: int) -> int:
    """Instructions of one cleanup that forgets so many users."""
    count(backend.make(2).cleanup_idle_users, 100 * NS_PER_S)
    counted = count(backend.make(users).cleanup_idle_users, 100 * NS_PER_S)
    assert counted.answer == users
    return counted.opcodes


def entries(backend: Backend, users: int) -> int:
    """Entries of containers that a limiter holds for so many users in debt at the same time."""
    limiter = backend.make()
    empty = _entries(limiter)
    for n in range(users):
        _use_up(limiter, f"other-{n}")
    return _entries(limiter) - empty


def _entries(root: object) -> int:
    total, seen, todo = 0, set(), [root]
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, type | str | int):
            continue
        seen.add(id(each))
        if isinstance(each, dict | list | tuple | set | deque):
            total += len(each)
            todo.extend(each.values() if isinstance(each, dict) else each)
        else:
            todo.extend(_attributes(each))
    return total


def _attributes(each: object) -> Iterator[object]:
    yield from getattr(each, "__dict__", {}).values()
    for cls in type(each).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for slot in [slots] if isinstance(slots, str) else slots:
            if hasattr(each, slot):
                yield getattr(each, slot)


def measure() -> dict[str, int]:
    """All counts of the limiters by name."""
    counts: dict[str, int] = {}
    for name, backend in BACKENDS.items():
        for verb in VERBS:
            counts[f"{name}: {verb}"] = opcodes(backend.make(), verb)
        counts[f"{name}: 100 takes at the pace"] = opcodes_of_a_long_stay(backend)
        for users in (100, 1000):
            counts[f"{name}: cleanup of {users} users"] = opcodes_of_a_cleanup(backend, users)
        counts[f"{name}: entries of 1000 users"] = entries(backend, 1000)
    return counts
