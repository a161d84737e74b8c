"""Drive a limiter as a greedy user does, and look at what it granted in windows of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from conformance.level1.settings import S, Setting
from limiters import Limiter

MOST_AT_ONCE = 2_000
"""No setting tried here has a quota as large: a limiter that grants as many never denies."""


class Window(NamedTuple):
    """A closed window and what it holds."""

    start_ns: int
    end_ns: int
    grants: int
    promised: int

    def __str__(self) -> str:
        return f"window [{self.start_ns}, {self.end_ns}] ns (W = {self.end_ns - self.start_ns} ns)"


def take_all(limiter: Limiter, user: str, now_ns: int) -> int:
    """Take until denied; how many were taken."""
    taken = 0
    while taken < MOST_AT_ONCE and limiter.try_take(user, now_ns):
        taken += 1
    return taken


def edges(setting: Setting, tokens: int) -> Iterator[int]:
    """Where one more token comes due after a full quota, and a ns to each side, in ns from 0."""
    interval = S / setting.rate
    for n in range(tokens + 1):
        for edge in (n * interval, n * interval - setting.burst_ns):
            for off in (-1, 0, 1, 2):
                yield int(edge) + off


def eager(limiter: Limiter, user: str, setting: Setting, start_ns: int, tokens: int) -> list[int]:
    """The instants of the grants of a user who tries whenever anything could have changed.

    It tries where the limiter says that it is ready and at all `edges`, so that a limiter that
    is wrong about the one is still found out at the other. Ends after `tokens` intervals.
    """
    span = int(tokens * S / setting.rate)
    due = sorted({start_ns, *(start_ns + at for at in edges(setting, tokens) if 0 < at <= span)})
    grants: list[int] = []
    index, now = 0, start_ns
    trust = 4 * len(due)  # in a limiter whose ready instants never come true
    while True:
        taken = take_all(limiter, user, now)
        grants += [now] * taken
        if taken == MOST_AT_ONCE or len(grants) > 3 * MOST_AT_ONCE:
            return grants  # enough to see that it does not limit
        while index < len(due) and due[index] <= now:
            index += 1
        if index == len(due):
            return grants
        ready = limiter.ready_at_ns(user, now)
        trust -= 1
        now = min(due[index], ready) if ready > now and trust > 0 else due[index]


def fullest(
    grants: Sequence[int], most: Callable[[int], int], *, starts: int | None = None
) -> Window | None:
    """The first closed window that holds more than `most(width)`, or None.

    Looks at those that begin at one of the first `starts` instants (default: all).
    """
    counts = sorted(Counter(grants).items())
    for first, (start, _) in enumerate(counts[:starts]):
        held = 0
        for end, count in counts[first:]:
            held += count
            promised = most(end - start)
            if held > promised:
                return Window(start, end, held, promised)
    return None


def widest_gap(grants: Iterable[int]) -> tuple[int, int, int]:
    """(gap, from, to) of the longest wait between two grants, in ns."""
    ordered = sorted(grants)
    return max((b - a, a, b) for a, b in pairwise(ordered))


def stepped(limiter: Limiter, user: str, step_ns: int, streams: int, steps: int) -> list[int]:
    """The grants of a user who may take up to `streams` tokens at each step, from instant 0."""
    grants = []
    for step in range(steps):
        now = step * step_ns
        for _stream in range(min(streams, MOST_AT_ONCE)):
            if not limiter.try_take(user, now):
                break
            grants.append(now)
    return grants
