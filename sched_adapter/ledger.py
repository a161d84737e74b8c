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


@dataclass(slots=True)
class Flight:
    """The sampled positions of one dispatched step whose output is still to come."""

    scheduled: dict[str, int]  # vLLM's num_scheduled_tokens
    chunks: frozenset[str]  # of these, prompt chunks that sample nothing
    sampled: Counter[str]  # user -> positions not yet delivered or lost

    def samples(self, request_id: str) -> bool:
        return request_id in self.scheduled and request_id not in self.chunks


class Ledger:
    """Accounts of the limited users that are live; those gone are summed up in ``departed``.

    Kept by column, user -> tokens, since a whole step is booked at once.
    """

    def __init__(self) -> None:
        self.charged: Counter[str] = Counter()
        self.refunded: Counter[str] = Counter()
        self.dispatched: Counter[str] = Counter()
        self.delivered: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.departed = Account()
        self.flights: dict[int, Flight] = {}  # id of the step's output -> flight
        #: Tokens of limited users dispatched without a charge, since the backend gave no answer.
        self.failed_open = 0
        self._leaving: set[str] = set()

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

    def dispatch(
        self, step: int, scheduled: dict[str, int], chunks: Iterable[str], sampled: Counter[str]
    ) -> None:
        """A step that samples ``sampled`` (limited user -> tokens) was handed out."""
        self.dispatched.update(sampled.elements())
        self.flights[step] = Flight(scheduled, frozenset(chunks), sampled)

    def deliver(self, step: int) -> Flight | None:
        """The output of that step is about to be processed."""
        flight = self.flights.pop(step, None)
        if flight is not None:
            self.delivered.update(flight.sampled.elements())
        return flight

    def lose(self, request_id: str, user: str) -> int:
        """What is in flight for this request will not reach anybody; how many tokens."""
        lost = 0
        for flight in self.flights.values():
            if flight.sampled.get(user) and flight.samples(request_id):
                flight.sampled[user] -= 1
                flight.chunks |= {request_id}  # once only
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
