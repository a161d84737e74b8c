"""The interface of every limiter: may this user have one more token now?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from fractions import Fraction

from .checks import check_int, check_user, shown
from .rate import RateLike, parse_rate

DEFAULT_BURST_NS = 100_000_000
"""The burst unless configured: 0.1 s."""


class Limiter(ABC):
    """Limits the tokens per second of each user; knows no clock, no engine and no lock.

    Time is an argument: `now_ns`, a monotonic instant in integer nanoseconds that never decreases
    from one call to the next. It may be zero or negative. Rates are in tokens per second, see
    `parse_rate`. A user without a rate of its own has the default rate; where that is None it is
    unlimited: it may always take, and never has state.

    A user without state has a full quota. Only a granted take, or a change of a rate, gives a user
    state; a denied take and a question write nothing. Bad arguments raise TypeError or ValueError,
    in one line, before anything is changed. (For speed, `try_take` looks at the type of `now_ns`
    only where the user has no state yet.)

    A backend implements the abstract verbs, calls `Limiter.__init__`, reads its settings through
    `rate_of`, `default_rate` and `burst_ns`, and overrides `_retune` if its state depends on them.
    """

    __slots__ = ("_burst_ns", "_default_rate", "_rates")

    def __init__(
        self,
        *,
        default_rate: RateLike | None,
        rates: Mapping[str, RateLike] | None = None,
        burst_ns: int = DEFAULT_BURST_NS,
    ) -> None:
        """Take the default rate, the rates of single users by name, and the burst in ns.

        The burst is by how much a user may be ahead of an even pace. Raises as `parse_rate` does,
        TypeError or ValueError for a burst that is no int or below 0 and for a bad user.
        """
        self._default_rate = None if default_rate is None else parse_rate(default_rate)
        self._rates: dict[str, Fraction] = {}
        if rates is not None and not isinstance(rates, Mapping):
            raise TypeError(f"rates must map users to rates, got {shown(rates)}")
        for user, rate in (rates or {}).items():
            check_user(user)
            self._rates[user] = _rate_of_user(user, rate)
        check_int("burst_ns", burst_ns, least=0)
        self._burst_ns = burst_ns

    @abstractmethod
    def try_take(self, user: str, now_ns: int) -> bool:
        """Take one token of the user's quota; False, and nothing changes, if there is none."""

    @abstractmethod
    def refund(self, user: str, now_ns: int) -> None:
        """Undo one take of this instant whose token was never dispatched.

        From then on everything is as if the take had not been. Never lifts a quota above full; a
        user whose quota is then full is forgotten; a user without state stays so.
        """

    @abstractmethod
    def available(self, user: str, now_ns: int) -> int:
        """How many tokens `try_take` would grant now; `sys.maxsize` for an unlimited user."""

    @abstractmethod
    def ready_at_ns(self, user: str, now_ns: int) -> int:
        """`now_ns` if a take passes now, else the earliest instant at which one does.

        A take at that instant passes and one at 1 ns before it does not.
        """

    @abstractmethod
    def cleanup_idle_users(self, now_ns: int) -> int:
        """Forget the users who cannot be told from new ones; returns how many."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of users with state."""

    def try_take_many(self, user: str, count: int, now_ns: int) -> int:
        """Take as many tokens as pass now, at most `count`; returns how many were taken.

        The same as `count` calls of `try_take` at this instant.
        """
        check_int("count", count, least=0)
        for taken in range(count):
            if not self.try_take(user, now_ns):
                return taken
        return count

    def try_take_all(self, users: list[str], now_ns: int) -> bool:
        """Take one token for each of `users`, all of them now or none at all.

        `users` is a list, in which a user may be more than once. False, or an error, leaves
        everything as it was.
        """
        if not isinstance(users, list):
            raise TypeError(f"users must be a list of users, got {shown(users)}")
        check_int("now_ns", now_ns)
        for user in users:
            check_user(user)
        for taken, user in enumerate(users):
            if not self.try_take(user, now_ns):
                for each in users[:taken]:
                    self.refund(each, now_ns)
                return False
        return True

    def end_step(self, start_ns: int, now_ns: int) -> None:  # noqa: B027
        """Tell that the batch step that began at `start_ns` has just ended, at `now_ns`.

        To be told before anything is taken at this instant, in the order of the steps; not for a
        wait or a pause. Only limiters whose quota follows the steps listen (`auto_burst`).
        """

    @property
    def default_rate(self) -> Fraction | None:
        """The rate, in tokens per second, of users without one of their own; None: unlimited."""
        return self._default_rate

    @property
    def burst_ns(self) -> int:
        """By how much a user may be ahead of an even pace, in ns."""
        return self._burst_ns

    def rate_of(self, user: str) -> Fraction | None:
        """The user's rate in tokens per second; None: unlimited."""
        check_user(user)
        return self._rates.get(user, self._default_rate)

    def set_rate(self, user: str, rate: RateLike, now_ns: int) -> None:
        """Give the user a rate of its own, from now on."""
        check_user(user)
        parsed = _rate_of_user(user, rate)
        check_int("now_ns", now_ns)
        self._rates[user] = parsed
        self._retune(user, now_ns)

    def unset_rate(self, user: str, now_ns: int) -> None:
        """Let the user have the default rate again, from now on."""
        check_user(user)
        check_int("now_ns", now_ns)
        if self._rates.pop(user, None) is not None:
            self._retune(user, now_ns)

    def set_default_rate(self, rate: RateLike | None, now_ns: int) -> None:
        """Set the rate of all users without one of their own, from now on; None: unlimited."""
        parsed = None if rate is None else parse_rate(rate)
        check_int("now_ns", now_ns)
        self._default_rate = parsed
        self._retune(None, now_ns)

    def set_burst(self, burst_ns: int, now_ns: int) -> None:
        """Set the burst, in ns, from now on."""
        check_int("burst_ns", burst_ns, least=0)
        check_int("now_ns", now_ns)
        self._burst_ns = burst_ns
        self._retune(None, now_ns)

    def _retune(self, user: str | None, now_ns: int) -> None:  # noqa: B027
        """Follow a change of the settings, which already read as changed.

        `user` is the one whose rate changed, or None if the default or the burst did. The rule:
        the level in tokens survives, fraction included, up to the new full quota.
        """

    def __repr__(self) -> str:
        default = "unlimited" if self._default_rate is None else f"{self._default_rate}/s"
        return (
            f"<{type(self).__name__} default {default}, {len(self._rates)} own rates, "
            f"burst {self._burst_ns} ns, {len(self)} users with state>"
        )


def _rate_of_user(user: str, rate: RateLike) -> Fraction:
    try:
        return parse_rate(rate)
    except (TypeError, ValueError) as error:
        raise type(error)(f"user {shown(user)}: {error}") from None
