"""Who is preempted so that a user with quota fits: a pure choice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

R = TypeVar("R")

#: Above this many table entries the exact choice gives way to a greedy one.
_EXACT_UP_TO = 200_000


class Holder(NamedTuple, Generic[R]):
    """A throttled resident that could give up what it holds."""

    request: R
    frees: int  # blocks that come free
    recompute: int  # tokens to compute again when it resumes


def choose(holders: Iterable[Holder[R]], blocks: int) -> list[R]:
    """The holders to preempt so that at least ``blocks`` blocks come free.

    Least recomputed tokens, ties to fewer requests, never one more than needed;
    none at all where even all of them would not do.
    """
    pool = sorted((h for h in holders if h.frees > 0), key=lambda h: (h.recompute, -h.frees))
    if blocks <= 0 or sum(h.frees for h in pool) < blocks:
        return []
    if len(pool) * blocks <= _EXACT_UP_TO:
        return _exact(pool, blocks)
    return _greedy(pool, blocks)


def _exact(pool: Sequence[Holder[R]], blocks: int) -> list[R]:
    # best[n]: the cheapest way (tokens, requests, who) to free n blocks; n is capped
    # at what is needed.
    best: list[tuple[int, int, tuple[R, ...]] | None] = [None] * (blocks + 1)
    best[0] = (0, 0, ())
    for request, frees, recompute in pool:
        for freed in range(blocks, -1, -1):
            way = best[freed]
            if way is None or freed == blocks:
                continue
            then = min(blocks, freed + frees)
            better = (way[0] + recompute, way[1] + 1)
            known = best[then]
            if known is None or better < known[:2]:
                best[then] = (*better, (*way[2], request))
    found = best[blocks]
    assert found is not None  # all of them would do
    return list(found[2])


def _greedy(pool: Sequence[Holder[R]], blocks: int) -> list[R]:
    taken: list[Holder[R]] = []
    for holder in pool:
        taken.append(holder)
        blocks -= holder.frees
        if blocks <= 0:
            break
    for holder in sorted(taken, key=lambda h: -h.recompute):  # give back what is not needed
        if blocks + holder.frees <= 0:
            blocks += holder.frees
            taken.remove(holder)
    return [holder.request for holder in taken]
