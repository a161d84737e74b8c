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
from dataclasses import dataclass, field, fields


@dataclass(slots=True)
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

    def __iadd__(self, other: Account) -> Account:
        for column in fields(Account):
            name = column.name
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


@dataclass(slots=True)
class Flight:
    """The sampled positions of one dispatched step whose output is still to come."""

    scheduled: dict[str, int]  # vLLM's num_scheduled_tokens
    chunks: frozenset[str]  # of these, prompt chunks that sample nothing
    sampled: Counter[str]  # user -> positions not yet delivered or lost

    def samples(self, request_id: str) -> bool:
        return request_id in self.scheduled and request_id not in self.chunks


@dataclass(slots=True)
class Ledger:
    """Accounts of the limited users that are live; those gone are in ``departed``."""

    accounts: dict[str, Account] = field(default_factory=dict)
    departed: Account = field(default_factory=Account)
    flights: dict[int, Flight] = field(default_factory=dict)  # id of the step's output -> flight
    #: Tokens of limited users dispatched without a charge, since the backend gave no answer.
    failed_open: int = 0
    _leaving: set[str] = field(default_factory=set)

    def of(self, user: str) -> Account:
        account = self.accounts.get(user)
        if account is None:
            account = self.accounts[user] = Account()
        return account

    def total(self) -> Account:
        total = Account()
        for account in (self.departed, *self.accounts.values()):
            total += account
        return total

    def dispatch(
        self, step: int, scheduled: dict[str, int], chunks: Iterable[str], sampled: Counter[str]
    ) -> None:
        """A step that samples ``sampled`` (limited user -> tokens) was handed out."""
        for user, count in sampled.items():
            self.of(user).dispatched += count
        self.flights[step] = Flight(scheduled, frozenset(chunks), sampled)

    def deliver(self, step: int) -> Flight | None:
        """The output of that step is about to be processed."""
        flight = self.flights.pop(step, None)
        if flight is not None:
            for user, count in flight.sampled.items():
                self.of(user).delivered += count
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
            self.of(user).lost += lost
        return lost

    def leave(self, user: str) -> None:
        """The user has no live request any more."""
        self._leaving.add(user)
        self.fold()

    def fold(self) -> None:
        """Close the accounts of users that left and have nothing in flight."""
        for user in list(self._leaving):
            account = self.accounts.get(user)
            if account is None or not account.in_flight:
                self._leaving.discard(user)
                if account is not None:
                    self.departed += self.accounts.pop(user)

    def stay(self, user: str) -> None:
        """The user is back before its account was closed."""
        self._leaving.discard(user)
