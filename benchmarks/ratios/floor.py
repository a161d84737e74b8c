"""The least that a limiter per user can be: a dict, ints, and nothing else around them."""

from __future__ import annotations

from collections.abc import Callable


def bare(interval_ns: int = 100_000_000, burst_ns: int = 100_000_000) -> Callable[[str, int], bool]:
    """GCRA for one rate without checks, rates of users, change, refund, or a class."""
    tats: dict[str, int] = {}

    def try_take(user: str, now_ns: int) -> bool:
        try:
            tat = tats[user]
        except KeyError:
            tat = now_ns
        if tat > now_ns + burst_ns:
            return False
        tats[user] = (tat if tat > now_ns else now_ns) + interval_ns
        return True

    return try_take
