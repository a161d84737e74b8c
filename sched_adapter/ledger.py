"""What was charged, given back, dispatched, delivered and lost, per user.

The identity that holds after every step, for users while they are limited:

    charged - refunded == dispatched == delivered + in flight + lost

A token is attributed when its step is dispatched.  Lost are the positions that
were dispatched and never reach the client: the step in flight when a request
is aborted, the look-ahead of async scheduling after a stop, output that vLLM
drops as stale.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Account:
    """Sampled positions of one user, in tokens."""

    charged: int = 0
    refunded: int = 0
    dispatched: int = 0
    delivered: int = 0
    lost: int = 0

    @property
    def in_flight(self) -> int:
        return self.dispatched - self.delivered - self.lost

    @property
    def balanced(self) -> bool:
        return self.charged - self.refunded == self.dispatched and self.in_flight >= 0


COLUMNS = tuple(column.name for column in fields(Account))


class Column:
    """Tokens of one kind by user.

    Step after step most batches are the same, and book the same object: such steps are only
    counted, and summed up when somebody asks.
    """

    __slots__ = ("_step", "_sums", "_times")

    def __init__(self) -> None:
        self._sums: Counter[str] = Counter()
        self._step: Counter[str] = Counter()
        self._times = 0

    def add(self, step: Counter[str]) -> None:
        """Book a step's tokens by user, in an object that does not change any more."""
        if step is not self._step:
            self.sums()
            self._step = step
        self._times += 1

    def sums(self) -> Counter[str]:
        """The tokens by user as they stand."""
        if self._times:
            for user, tokens in self._step.items():
                self._sums[user] += tokens * self._times
            self._times = 0
        return self._sums


@dataclass(slots=True)
class Flight:
    """The sampled positions of one dispatched step whose output is still to come."""

    scheduled: dict[str, int]  # vLLM's num_scheduled_tokens
    chunks: frozenset[str]  # of these, prompt chunks that sample nothing
    sampled: Counter[str]  # user -> positions not yet delivered or lost; others may hold it too

    def samples(self, request_id: str) -> bool:
        return request_id in self.scheduled and request_id not in self.chunks

    def lose(self, request_id: str, user: str) -> None:
        """One position of the user's is lost; counted once only."""
        self.sampled = self.sampled - Counter([user])
        self.chunks |= {request_id}


class Ledger:
    """Accounts of the limited users that are live; those gone are summed up in ``departed``.

    Kept by column, user -> tokens, since a whole step is booked at once.
    """

    def __init__(self) -> None:
        self._charged, self._dispatched, self._delivered = Column(), Column(), Column()
        self.refunded: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.departed = Account()
        self.flights: dict[int, Flight] = {}  # id of the step's output -> flight
        #: Tokens of limited users dispatched without a charge, since the backend gave no answer.
        self.failed_open = 0
        self._leaving: set[str] = set()

    @property
    def charged(self) -> Counter[str]:
        return self._charged.sums()

    @property
    def dispatched(self) -> Counter[str]:
        return self._dispatched.sums()

    @property
    def delivered(self) -> Counter[str]:
        return self._delivered.sums()

    def of(self, user: str) -> Account:
        """The user's account as it stands."""
        return Account(*(getattr(self, column)[user] for column in COLUMNS))

    @property
    def accounts(self) -> dict[str, Account]:
        """The accounts that are open."""
        users: set[str] = set().union(*(getattr(self, column) for column in COLUMNS))
        return {user: self.of(user) for user in users}

    def total(self) -> Account:
        """All accounts, open and closed, in one."""
        gone = self.departed
        return Account(*(getattr(self, c).total() + getattr(gone, c) for c in COLUMNS))

    def charge(self, step: Counter[str]) -> None:
        """Each of these users was charged so many tokens; the object stays as it is."""
        self._charged.add(step)

    def dispatch(
        self, step: int, scheduled: dict[str, int], chunks: Iterable[str], sampled: Counter[str]
    ) -> None:
        """A step was handed out that samples ``sampled``: limited user -> tokens, for good."""
        self._dispatched.add(sampled)
        self.flights[step] = Flight(scheduled, frozenset(chunks), sampled)

    def deliver(self, step: int) -> Flight | None:
        """The output of that step is about to be processed."""
        flight = self.flights.pop(step, None)
        if flight is not None:
            self._delivered.add(flight.sampled)
        return flight

    def lose(self, request_id: str, user: str) -> int:
        """What is in flight for this request will not reach anybody; how many tokens."""
        lost = 0
        for flight in self.flights.values():
            if flight.sampled.get(user) and flight.samples(request_id):
                flight.lose(request_id, user)
                lost += 1
        if lost:
            self.lost[user] += lost
        return lost

    def leave(self, user: str) -> None:
        """The user has no live request any more."""
        self._leaving.add(user)
        self.fold()

    def fold(self) -> None:
        """Close the accounts of users that left and have nothing in flight."""
        for user in list(self._leaving):
            account = self.of(user)
            if not account.in_flight:
                self._leaving.discard(user)
                gone = self.departed
                self.departed = Account(
                    *(getattr(gone, c) + getattr(self, c).pop(user, 0) for c in COLUMNS)
                )

    def stay(self, user: str) -> None:
        """The user is back before its account was closed."""
        self._leaving.discard(user)
