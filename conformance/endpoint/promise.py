"""What a limiter promised one user, in numbers that a list of instants can be held against.

Both promises are checked in every closed window at once, in exact integers, in one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

SECOND_NS = 1_000_000_000
DEFAULT_BURST_NS = 100_000_000


@dataclass(frozen=True, slots=True)
class Window:
    """A closed window that holds more than it may: its ends, its tokens, what it may hold."""

    start_ns: int
    end_ns: int
    tokens: int
    promised: int

    def __str__(self) -> str:
        width = (self.end_ns - self.start_ns) / SECOND_NS
        return (
            f"{self.tokens} tokens in the {width:.4f} s from {self.start_ns} ns, "
            f"{self.promised} promised"
        )


class Promise(Protocol):
    """What is checked about one user's tokens."""

    @property
    def rate(self) -> Fraction:
        """Tokens per second."""

    def most(self, width_ns: int) -> int:
        """The most tokens that a closed window of this width may hold."""

    def spacing_ns(self) -> int:
        """The longest wait between two grants of a user who always wants more, before the step."""

    def reach(self, step_ns: int, streams: int) -> Fraction | None:
        """The least rate of such a user, if every step takes `step_ns`; None: nothing promised."""

    def saved_ns(self, step_ns: int) -> int:
        """A step longer than this loses quota, beyond what `reach` counts for `step_ns`."""

    def worst(self, instants: Sequence[int]) -> Window | None:
        """The window that exceeds the promise by most, None if none does.

        `instants` never decrease.
        """


@dataclass(frozen=True, slots=True)
class Even:
    """GCRA and token bucket: at most `floor((W + burst) * rate) + 1` in any closed window of W."""

    rate: Fraction
    burst_ns: int = DEFAULT_BURST_NS

    def most(self, width_ns: int) -> int:
        return int((width_ns + self.burst_ns) * self.rate / SECOND_NS) + 1

    def spacing_ns(self) -> int:
        return _ceil(SECOND_NS / self.rate)

    def reach(self, step_ns: int, streams: int) -> Fraction | None:
        longest = min(Fraction(self.burst_ns), streams * SECOND_NS / self.rate)
        return self.rate if step_ns <= longest else None

    def saved_ns(self, step_ns: int) -> int:
        return self.burst_ns

    def worst(self, instants: Sequence[int]) -> Window | None:
        # A window from token i to token j breaks the promise iff
        #   (j - i) / rate > (t_j - t_i) + burst,
        # that is lead_j - lead_i > burst with lead_i = i / rate - t_i: the least lead so far is
        # the worst start for every end. Scaled by the rate's numerator it is all integers.
        p, q = self.rate.numerator, self.rate.denominator * SECOND_NS
        least, start = 0, 0
        most_over, found = 0, None
        for j, instant in enumerate(instants):
            lead = j * q - instant * p
            if j == 0 or lead < least:
                least, start = lead, j
            over = lead - least - self.burst_ns * p
            if over > most_over:
                most_over, found = over, (start, j)
        return None if found is None else _window(instants, *found, self)


@dataclass(frozen=True, slots=True)
class Log:
    """The rolling window: at most `k = max(1, floor(window * rate))` in any half-open `k / rate`.

    In closed windows that is `k * (floor(W * rate / k) + 1)`.
    """

    rate: Fraction
    window_ns: int = DEFAULT_BURST_NS

    @property
    def k(self) -> int:
        """Tokens that the log holds."""
        return max(1, int(self.window_ns * self.rate / SECOND_NS))

    def most(self, width_ns: int) -> int:
        return self.k * (int(width_ns * self.rate / SECOND_NS / self.k) + 1)

    def spacing_ns(self) -> int:
        return _ceil(self.k * SECOND_NS / self.rate)

    def reach(self, step_ns: int, streams: int) -> Fraction | None:
        # A step hands one token to each stream, so with few streams a full log takes long to use.
        if streams < self.k:
            return None
        return self.rate / (1 + step_ns * self.rate / SECOND_NS / self.k)

    def saved_ns(self, step_ns: int) -> int:
        return step_ns

    def worst(self, instants: Sequence[int]) -> Window | None:
        # Any k + 1 tokens in a row must span k / rate at least; longer windows follow from that.
        p, q, k = self.rate.numerator, self.rate.denominator, self.k
        most_over, found = 0, None
        for j in range(k, len(instants)):
            over = k * q * SECOND_NS - (instants[j] - instants[j - k]) * p
            if over > most_over:
                most_over, found = over, (j - k, j)
        return None if found is None else _window(instants, *found, self)


def fullest(instants: Sequence[int], width_ns: int) -> int:
    """The most tokens in any closed window of `width_ns`. `instants` never decrease."""
    most = start = 0
    for end, instant in enumerate(instants):
        while instant - instants[start] > width_ns:
            start += 1
        most = max(most, end - start + 1)
    return most


def _window(instants: Sequence[int], start: int, end: int, promise: Promise) -> Window:
    width = instants[end] - instants[start]
    return Window(instants[start], instants[end], end - start + 1, promise.most(width))


def _ceil(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)
