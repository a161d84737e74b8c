"""Random histories: what may be asked of a limiter, in any order, at awkward instants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from conformance.contract import Contract
from conformance.level1.settings import BURSTS_NS, MS, RATES, S
from conformance.rules import Trial
from limiters import Limiter

USERS = ("a", "b", "c")

Move = tuple[Any, ...]
"""A verb of a limiter and its arguments without the instant; or ("pause", ns), which moves time;
or ("await", user, ns), which moves it to so many ns after the user is ready; or ("step", ns), which
moves it and tells that a step of that length has ended."""

rates = st.sampled_from(RATES)
maybe_rates = st.sampled_from([*RATES, *RATES[:5], None, None])
users = st.sampled_from(["a", "a", "a", "b", "c"])
bursts = st.sampled_from(BURSTS_NS)

# On and beside the edges: a ns off, whole intervals, whole bursts, long pauses.
pauses = st.one_of(
    st.sampled_from([0, 0, 1, 30 * MS, 99 * MS, 100 * MS]),
    st.builds(
        lambda rate, off: max(0, S * rate.denominator // rate.numerator + off),
        rates,
        st.integers(-1, 1),
    ),
    st.builds(lambda burst, off: max(0, burst + off), bursts, st.integers(-1, 1)),
    st.integers(0, 3 * S),
)

takes = st.one_of(
    st.tuples(st.just("try_take"), users),
    st.tuples(st.just("try_take"), users),
    st.tuples(st.just("try_take_many"), users, st.integers(0, 5)),
)
pausing = st.one_of(
    st.tuples(st.just("pause"), pauses),
    st.tuples(st.just("await"), users, st.sampled_from([-1, 0, 0, 1])),
)
steps = st.tuples(st.just("step"), pauses | st.integers(0, 12 * S))
asks = st.one_of(
    takes,
    takes,
    st.tuples(st.just("refund"), users),
    st.tuples(st.just("cleanup_idle_users")),
    pausing,
    pausing,
)
changes = st.one_of(
    st.tuples(st.just("set_rate"), users, rates),
    st.tuples(st.just("unset_rate"), users),
    st.tuples(st.just("set_default_rate"), maybe_rates),
    st.tuples(st.just("set_burst"), bursts),
)

openings = st.tuples(maybe_rates, st.dictionaries(users, rates, max_size=2), bursts)
"""The default rate, own rates, and the burst."""

origins = st.sampled_from([0, -1, -S, S, 123_456_789_012_345])


def moves(contract: Contract, *, size: int = 25, changing: bool = True) -> st.SearchStrategy[Any]:
    """Lists of moves that this backend can be asked for."""
    kinds = [asks, asks]
    if changing:
        kinds.append(changes)
    if contract.follows_steps:
        kinds.append(steps)
    # Left to itself, hypothesis prefers short lists, in which next to nothing happens.
    return st.lists(st.one_of(*kinds), min_size=size // 2, max_size=size)


class Player:
    """A limiter, or a definition of one, and the clock that its history runs on."""

    def __init__(self, limiter: Limiter | Any, now_ns: int = 0) -> None:
        self.limiter = limiter
        self.now_ns = now_ns

    def play(self, move: Move) -> Any:
        """Do one move; the answer."""
        verb, *arguments = move
        if verb == "pause":
            self.now_ns += arguments[0]
            return None
        if verb == "await":
            user, off = arguments
            before, ready = self.now_ns, self.limiter.ready_at_ns(user, self.now_ns)
            self.now_ns = max(before, ready + off)
            return self.now_ns - before
        if verb == "step":
            start, self.now_ns = self.now_ns, self.now_ns + arguments[0]
            return self.limiter.end_step(start, self.now_ns)
        return getattr(self.limiter, verb)(*arguments, self.now_ns)

    def answers(self, whose: Iterable[str] = USERS) -> list[tuple[int, int]]:
        """(available, ns until ready) of each user."""
        return [
            (
                self.limiter.available(user, self.now_ns),
                self.limiter.ready_at_ns(user, self.now_ns) - self.now_ns,
            )
            for user in whose
        ]


def play_beside(
    moves: Sequence[Move],
    one: Player,
    other: Player,
    *,
    before: Callable[[Move], None],
    differ: Callable[[str, object, object], None],
    whose: Sequence[str] = USERS,
    size: bool = True,
) -> None:
    """Play one history on two limiters, `before` each move doing what must not show.

    `differ` is told of the first answer that is not the same: where, and both.
    """
    for number, move in enumerate(moves):
        before(move)
        got, expected = one.play(move), other.play(move)
        at = f"move {number + 1} {move} at {one.now_ns} ns"
        if move[0] != "cleanup_idle_users" and got != expected:
            differ(f"answer of {at}", got, expected)
        for user, mine, its in zip(whose, one.answers(whose), other.answers(whose), strict=True):
            if mine != its:
                differ(f"(available, ns until ready) of {user} after {at}", mine, its)
        if size and len(one.limiter) != len(other.limiter):
            differ(f"users with state after {at}", len(one.limiter), len(other.limiter))


def player(contract: Contract, opening: Any, origin: int = 0) -> Player:
    """A new limiter of the contract, see `openings`."""
    default, rates, burst_ns = opening
    return Player(contract.limiter(default, rates=rates, burst_ns=burst_ns), origin)


def teller(trial: Trial, opening: Any, beside: str = "") -> Callable[[str, object, object], None]:
    """What `play_beside` tells of a difference."""

    def differ(where: str, got: object, expected: object) -> None:
        default, rates, burst_ns = opening
        rates = {user: str(rate) for user, rate in rates.items()}
        trial.broken(
            user="a, b or c",
            at=f"{where} (default {default} tok/s, own {rates}, burst {burst_ns} ns{beside})",
            seen=got,
            promised=expected,
        )

    return differ
