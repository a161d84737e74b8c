"""Whose turn it is: least recently served first, inside a user and between users.

A *user* is the unit of quota, a *line* (one user's streams of one priority) the
unit of turns.  Lines of users that may have quota stand in a ring; a user that
was denied sleeps until its quota is back and is not looked at before.

Nothing here knows vLLM: a request is any hashable object.
"""

from __future__ import annotations

import heapq
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Generic, TypeVar

R = TypeVar("R")

UNLIMITED = sys.maxsize


class User(Generic[R]):
    """A user with live requests.  Its debt is the limiter's business, not ours."""

    __slots__ = (
        "asked",
        "granted",
        "left",
        "limited",
        "lines",
        "name",
        "pledged",
        "ready_ns",
        "short",
    )

    def __init__(self, name: str, limited: bool) -> None:
        self.name = name
        self.limited = limited
        self.lines: dict[int, Line[R]] = {}
        self.asked = -1  # the step in which the limiter was last asked
        self.granted = 0 if limited else UNLIMITED  # tokens taken for that step
        self.pledged = 0  # of these, promised to a stream
        self.left = self.granted  # of these, not yet used by a stream that samples
        self.short = False  # got fewer tokens than it has streams to serve
        self.ready_ns: int | None = None  # asleep until then; None: awake

    @property
    def residents(self) -> int:
        return sum(len(line.residents) for line in self.lines.values())

    @property
    def queued(self) -> int:
        return sum(line.queued for line in self.lines.values())

    @property
    def out_of_quota(self) -> bool:
        return self.ready_ns is not None or self.granted == 0

    def __repr__(self) -> str:
        state = "awake" if self.ready_ns is None else f"asleep until {self.ready_ns}"
        return f"User({self.name!r}, {self.residents} resident, {self.queued} queued, {state})"


class Line(Generic[R]):
    """One user's streams of one priority level, in the order of their turns."""

    __slots__ = ("admit", "level", "live", "missed", "queued", "residents", "shut", "since", "user")

    def __init__(self, user: User[R], level: int) -> None:
        self.user = user
        self.level = level
        self.live = 0
        #: Resident request -> the step that served it last; oldest first.
        self.residents: dict[R, int] = {}
        #: The step since which the first, second, ... waiting request has stood in line.
        self.since: deque[int] = deque()
        self.queued = 0  # requests waiting for a place
        self.admit = 0  # of these, how many this step may admit
        self.missed: int | None = None  # the last step that could not admit what it should have
        self.shut = False  # nothing of it can be admitted before the user has quota

    def in_turn(self, free: int, step: int, caught_up: int) -> Iterator[R | None]:
        """The streams by turn; None stands for the next waiting request.

        A waiting request stands in line once there is a place for it (``free``
        of them), from that step on: so a flood of short requests shares turns
        with the streams that run, and neither starves the other.
        ``caught_up`` is the last step that served every resident there was.
        """
        since = self.since
        while len(since) > self.queued:
            since.pop()
        while len(since) < min(free, self.queued):
            since.append(step)
        waiting = islice(since, free)
        oldest = next(waiting, None)
        for request, served in self.residents.items():
            while oldest is not None and oldest <= max(served, caught_up):
                yield None
                oldest = next(waiting, None)
            yield request
        while oldest is not None:
            yield None
            oldest = next(waiting, None)

    def serve(self, request: R, step: int) -> None:
        """Send a resident stream to the end of the line."""
        del self.residents[request]
        self.residents[request] = step

    def pass_over(self, count: int, step: int) -> int:
        """``count`` waiting requests had their turn and are not admitted: they lose that turn."""
        for _ in range(min(count, len(self.since))):
            self.since.popleft()
            self.since.append(step)
        self.admit -= count
        self.missed = step
        return count


class Turns(Generic[R]):
    """All users with live requests: who is awake, who sleeps, whose turn it is."""

    def __init__(self) -> None:
        self.users: dict[str, User[R]] = {}
        #: Priority level -> lines of users awake, least recently served first.
        self.rings: dict[int, dict[Line[R], None]] = {}
        self.limited_awake: dict[User[R], None] = {}
        self.asleep = 0
        self.caught_up = -1
        self._alarms: list[tuple[int, int, User[R]]] = []  # (ready, tie-breaker, user)
        self._alarm_count = 0

    def join(self, name: str, level: int, limited: Callable[[str], bool]) -> Line[R]:
        """The line for a new request of ``name``, made when it is the first."""
        user = self.users.get(name)
        if user is None:
            user = self.users[name] = User(name, limited(name))
            if user.limited:
                self.limited_awake[user] = None
        line = user.lines.get(level)
        if line is None:
            line = user.lines[level] = Line(user, level)
            if user.ready_ns is None:
                self.rings.setdefault(level, {})[line] = None
        line.live += 1
        return line

    def leave(self, line: Line[R]) -> bool:
        """A request of the line is gone; True if it was the last one of its user."""
        line.live -= 1
        if line.live:
            return False
        user = line.user
        del user.lines[line.level]
        self._leave_ring(line)
        if user.lines:
            return False
        del self.users[user.name]
        self.limited_awake.pop(user, None)
        if user.ready_ns is not None:
            user.ready_ns = None  # its alarm, if still set, finds nobody
            self.asleep -= 1
        return True

    def sleep(self, user: User[R], ready_ns: int) -> None:
        """Do not ask for this user again before ``ready_ns``."""
        self._alarm_count += 1
        heapq.heappush(self._alarms, (ready_ns, self._alarm_count, user))
        user.ready_ns = ready_ns
        self.asleep += 1
        self.limited_awake.pop(user, None)
        for line in user.lines.values():
            self._leave_ring(line)

    def wake(self, now_ns: int) -> list[Line[R]]:
        """Wake everybody whose quota is back; their lines go to the end of the ring."""
        woken: list[Line[R]] = []
        alarms = self._alarms
        while alarms and alarms[0][0] <= now_ns:
            ready_ns, _, user = heapq.heappop(alarms)
            if user.ready_ns == ready_ns:
                woken += self._rouse(user)
        return woken

    def _rouse(self, user: User[R]) -> Iterable[Line[R]]:
        user.ready_ns = None
        self.asleep -= 1
        self.limited_awake[user] = None
        for line in user.lines.values():
            line.shut = False
            self.rings.setdefault(line.level, {})[line] = None
        return user.lines.values()

    def relimit(self, user: User[R], limited: bool) -> list[Line[R]]:
        """The user's rate has changed: what was settled for it is void. Its lines, if it slept."""
        woken = [] if user.ready_ns is None else list(self._rouse(user))
        user.limited = limited
        user.asked = -1
        user.granted = user.left = 0 if limited else UNLIMITED
        user.pledged = 0
        user.short = False
        self.limited_awake.pop(user, None)
        if limited:
            self.limited_awake[user] = None
        if len(self._alarms) > 2 * self.asleep + 64:  # mostly of users who were woken here
            self._alarms = [alarm for alarm in self._alarms if alarm[2].ready_ns == alarm[0]]
            heapq.heapify(self._alarms)
        return woken

    def next_alarm_ns(self) -> int | None:
        """When the next sleeping user has quota again; None if nobody sleeps."""
        alarms = self._alarms
        while alarms and alarms[0][2].ready_ns != alarms[0][0]:
            heapq.heappop(alarms)
        return alarms[0][0] if alarms else None

    def deal(
        self, places: int, offer: Callable[[Line[R]], Iterator[R | None]]
    ) -> tuple[list[tuple[Line[R], R | None]], bool]:
        """Deal places round by round, one a line and round; best level first.

        ``offer`` yields what a line would do with its next place, or ends.
        Returns what was dealt, in that order, and whether places ran out.
        """
        dealt: list[tuple[Line[R], R | None]] = []
        for level in sorted(self.rings):
            hands: Iterator[tuple[Line[R], Iterator[R | None]]] = (
                (line, offer(line)) for line in self.rings[level]
            )
            while True:
                again: list[tuple[Line[R], Iterator[R | None]]] = []
                for line, hand in hands:
                    if len(dealt) == places:
                        return dealt, True
                    for pick in hand:
                        dealt.append((line, pick))
                        again.append((line, hand))
                        break
                if not again:
                    break
                hands = iter(again)
        return dealt, False

    def to_the_end(self, line: Line[R]) -> None:
        """The line was served: its next turn comes after everybody else's."""
        ring = self.rings.get(line.level, {})
        if line in ring:
            del ring[line]
            ring[line] = None

    def _leave_ring(self, line: Line[R]) -> None:
        ring = self.rings.get(line.level, {})
        if line in ring:
            del ring[line]
            if not ring:
                del self.rings[line.level]
