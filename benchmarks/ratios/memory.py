"""Memory that a limiter keeps for a user, in bytes."""

from __future__ import annotations

import gc
import tracemalloc

from limiters import make_limiter

SIZES = (10_000, 10_930, 1_000_000)
"""The second is just beyond where a dict doubles its table: the worst for a user's share."""


def bytes_per_user(backend: str, users: int, takes: int = 1) -> float:
    """Of a limiter's state, the names not counted: the caller has those anyway."""
    names = [f"user-{n}" for n in range(users)]
    limiter = make_limiter(backend, default_rate=10)
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for name in names:
            limiter.try_take_many(name, takes, 10**18)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / users
