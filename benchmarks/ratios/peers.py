"""Other rate limiters for Python, each asked as its documentation says, with a store in memory.

All read a clock in each call, which ours is told instead. None is asked to wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

Take = Callable[[str], object]
"""Take one token of a user's quota; what it answers differs."""

RATE = 1_000_000
"""Tokens per second: never reached, so that every take passes."""

GCRA = ("throttled-py gcra", "pyrate-limiter gcra", "pyrate-limiter gcra, its bucket alone")
"""Those that follow the same algorithm."""


def _limits() -> Take:
    from limits import RateLimitItemPerSecond
    from limits.storage import MemoryStorage
    from limits.strategies import SlidingWindowCounterRateLimiter

    limiter = SlidingWindowCounterRateLimiter(MemoryStorage())
    return partial(limiter.hit, RateLimitItemPerSecond(RATE))


def _throttled(algorithm: str) -> Take:
    from throttled import MemoryStore, Throttled, rate_limiter

    quota = rate_limiter.per_sec(RATE, burst=RATE)
    limiter = Throttled(using=algorithm, quota=quota, store=MemoryStore())
    return limiter.limit


def _pyrate() -> Take:
    from pyrate_limiter import Duration, Limiter, Rate, StateBucket

    limiters: dict[str, Limiter] = {}

    def take(user: str) -> object:
        # A bucket a user: what its documentation has a factory do.
        limiter = limiters.get(user)
        if limiter is None:
            limiter = limiters[user] = Limiter(StateBucket([Rate(RATE, Duration.SECOND)]))
        return limiter.try_acquire(user, blocking=False)

    return take


def _pyrate_bucket() -> Take:
    from pyrate_limiter import Duration, Rate, RateItem, StateBucket

    buckets: dict[str, StateBucket] = {}

    def take(user: str) -> object:
        bucket = buckets.get(user)
        if bucket is None:
            bucket = buckets[user] = StateBucket([Rate(RATE, Duration.SECOND)])
        return bucket.put(RateItem(user, bucket.now()))  # type: ignore[no-untyped-call]

    return take


def _token_bucket() -> Take:
    from token_bucket import Limiter, MemoryStorage

    return Limiter(RATE, RATE, MemoryStorage()).consume


def _aiolimiter() -> Take:
    from aiolimiter import AsyncLimiter

    limiters: dict[str, AsyncLimiter] = {}

    async def acquire(user: str) -> None:
        limiter = limiters.get(user)
        if limiter is None:
            limiter = limiters[user] = AsyncLimiter(RATE, 1)
        await limiter.acquire()

    loop = asyncio.new_event_loop()

    def take(user: str) -> object:
        # It wants a running loop; its coroutine never waits here, so one send runs it through.
        asyncio._set_running_loop(loop)
        try:
            acquire(user).send(None)
        except StopIteration:
            return True
        finally:
            asyncio._set_running_loop(None)
        raise RuntimeError("aiolimiter waited: the rate was reached")

    return take


PEERS: dict[str, Callable[[], Take]] = {
    "limits, sliding window": _limits,
    "throttled-py gcra": partial(_throttled, "gcra"),
    "throttled-py token bucket": partial(_throttled, "token_bucket"),
    "pyrate-limiter gcra": _pyrate,
    "pyrate-limiter gcra, its bucket alone": _pyrate_bucket,
    "token-bucket": _token_bucket,
    "aiolimiter, leaky bucket": _aiolimiter,
}
