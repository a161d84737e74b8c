"""The token bucket: the same promise as GCRA, kept as a level instead of an instant.

Per user a level of tokens and the instant at which it was true. It fills with the rate, up to one
token and what the burst brings; a take wants a whole token:

    level += rate * (now - then), allow iff level >= 1, then level = min(level, capacity) - 1

With capacity = 1 + burst * rate that is GCRA seen from the other side: capacity - level is
(TAT - now) * rate, and the two decide alike on every input. Why both, then? GCRA stores less and
is faster. The bucket is the picture that most people have in mind, and two independent pieces of
arithmetic that must agree check each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .interface import DEFAULT_BURST_NS
from .quota import QuotaLimiter
from .rate import RateLike
from .scale import Scale


class TokenBucket(QuotaLimiter):
    """A level, in units of the user's scale, and the instant in ns at which it was true."""

    __slots__ = ("_buckets",)

    def __init__(
        self,
        *,
        default_rate: RateLike | None,
        rates: Mapping[str, RateLike] | None = None,
        burst_ns: int = DEFAULT_BURST_NS,
    ) -> None:
        self._buckets: dict[str, tuple[int, int]] = {}  # no entry: a full bucket
        super().__init__(default_rate=default_rate, rates=rates, burst_ns=burst_ns)

    def try_take(self, user: str, now_ns: int) -> bool:
        try:
            level, then_ns = self._buckets[user]
        except (KeyError, TypeError):
            return self._take_unseen(user, now_ns)
        scale = self._own.get(user, self._shared)
        assert scale is not None  # an unlimited user never has state
        per_ns, per_token, _, _, _, _ = scale
        level += (now_ns - then_ns) * per_ns
        if level < per_token:
            return False
        level = min(level, self._full(scale, now_ns)) - per_token
        self._buckets[user] = level, now_ns
        return True

    def __len__(self) -> int:
        return len(self._buckets)

    def _level(self, user: str, scale: Scale, now_ns: int) -> int | None:
        bucket = self._buckets.get(user)
        if bucket is None:
            return None
        level, then_ns = bucket
        return level + (now_ns - then_ns) * scale.per_ns

    def _store(self, user: str, level: int, scale: Scale, now_ns: int) -> None:
        self._buckets[user] = level, now_ns

    def _forget(self, user: str) -> None:
        self._buckets.pop(user, None)

    def _users(self) -> Iterable[str]:
        return self._buckets
