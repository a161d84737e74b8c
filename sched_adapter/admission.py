"""The waiting queue seen per user, so that nobody waits behind a throttled request.

It stands in for ``Scheduler.waiting`` and ``Scheduler.kv_holding_waiting`` (vLLM
0.32.0).  Whoever looks at its head (bool, peek, pop) sees the first request that
may be admitted now; whoever counts or walks it sees all.  Each line has a row of
its own, so a step costs the same with one skipped request or ten thousand.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from vllm.v1.core.sched.request_queue import RequestQueue, SchedulingPolicy
from vllm.v1.request import Request, RequestStatus

from sched_adapter.turns import Line

#: A request's rank: its number (FCFS), or the request itself (PRIORITY: it compares).
Position = Any


class AdmissionQueue(RequestQueue):
    """A ``RequestQueue`` with one row a line; ``line_of`` gives the line of a request.

    Unstaged it is the stock queue in stock's order.  Staged for a step, it shows
    the first request of the lines that have ``admit`` left; then, while
    ``room_without_quota()``, prompts of the others, which can be computed up to
    their last token without quota.
    """

    def __init__(
        self, policy: SchedulingPolicy, line_of: Callable[[Request], Line[Request]]
    ) -> None:
        self._numbered = policy == SchedulingPolicy.FCFS
        self._line_of = line_of
        self._rows: dict[Line[Request], list[tuple[Position, Request]]] = {}
        self._position: dict[Request, Position] = {}  # entries of rows that differ are stale
        self._heads: list[tuple[Position, int, Line[Request]]] = []
        self._dormant: dict[Request, None] = {}  # sessions that wait for their next input
        self._lowest = self._highest = self._announced = 0
        self._shown: Request | None = None
        self._open: list[Line[Request]] | None = None
        self._room_without_quota: Callable[[], bool] = bool
        #: Lines found shut in this step: nothing to admit before their user has quota.
        self.found_shut: list[Line[Request]] = []

    # A step's view

    def stage(self, lines: list[Line[Request]], room_without_quota: Callable[[], bool]) -> None:
        """Until ``unstage``, show what these lines may admit, then what needs no quota."""
        self._open, self._room_without_quota, self._shown = lines, room_without_quota, None

    def close(self) -> None:
        """Until ``unstage``, show nothing."""
        self.stage([], bool)

    def unstage(self) -> None:
        self._open = self._shown = None
        for line in self.found_shut:
            if line.user.ready_ns is None:  # still awake: look again in the next step
                self.reopen(line)
        self.found_shut.clear()

    def shut(self, line: Line[Request]) -> None:
        """Nothing of this line can be admitted before its user has quota."""
        line.shut = True
        self.found_shut.append(line)

    def reopen(self, line: Line[Request]) -> None:
        line.shut = False
        self._announce(line)

    def first_of(self, line: Line[Request], count: int) -> list[Request]:
        """Up to ``count`` of a line's waiting requests, roughly the first ones."""
        return [request for _, request in self._rows.get(line, [])[:count]]

    def _head_of(self, line: Line[Request]) -> tuple[Position, Request] | None:
        row = self._rows.get(line)
        while row:
            position, request = row[0]
            if self._position.get(request) == position:
                return row[0]
            heapq.heappop(row)
        self._rows.pop(line, None)
        return None

    def _announce(self, line: Line[Request]) -> None:
        """Let the line's head take part in the order of all."""
        head = self._head_of(line)
        if head is None:
            return
        self._announced += 1
        heapq.heappush(self._heads, (head[0], self._announced, line))
        if len(self._heads) > 2 * len(self._rows) + 64:
            self._heads = [
                (head[0], number, other)
                for number, other in enumerate(list(self._rows))
                if not other.shut and (head := self._head_of(other))
            ]
            heapq.heapify(self._heads)

    def _admissible(self) -> Request | None:
        if self._open is not None:
            heads = [head for line in self._open if line.admit and (head := self._head_of(line))]
            if heads:
                return min(heads)[1]
            if not self._room_without_quota():
                return None
        while self._heads:
            position, _, line = self._heads[0]
            head = self._head_of(line)
            if head is not None and head[0] == position and not line.shut:
                if self._open is None or head[1].status != RequestStatus.PREEMPTED:
                    return head[1]
                self.shut(line)  # preempted for lack of quota: stays out until there is some
            heapq.heappop(self._heads)
        return None

    # RequestQueue

    def add_request(self, request: Request) -> None:
        self._highest += 1
        self._insert(request, self._highest)

    def prepend_request(self, request: Request) -> None:
        self._lowest -= 1
        self._insert(request, self._lowest)

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.prepend_request(request)

    def _insert(self, request: Request, number: int) -> None:
        line = self._line_of(request)
        if request.status == RequestStatus.WAITING_FOR_STREAMING_REQ:
            self._dormant[request] = None
            return
        position = self._position[request] = number if self._numbered else request
        row = self._rows.setdefault(line, [])
        heapq.heappush(row, (position, request))
        line.queued += 1
        if row[0][1] is request and not line.shut:
            self._announce(line)

    def rouse(self, request: Request) -> None:
        """A session that slept in this queue has input again."""
        if request in self._dormant:
            del self._dormant[request]
            self.add_request(request)

    def peek_request(self) -> Request:
        self._shown = self._admissible()
        if self._shown is None:
            raise IndexError("peek from a queue with nothing to admit")
        return self._shown

    def pop_request(self) -> Request:
        """Take what was shown last: a victim put in front since then is not it."""
        request = self._shown if self._shown in self._position else self.peek_request()
        self._shown = None
        self.remove_request(request)
        return request

    def remove_request(self, request: Request) -> None:
        if request not in self._position:
            self._dormant.pop(request, None)
            return
        del self._position[request]
        line = self._line_of(request)
        line.queued -= 1
        row = self._rows[line]
        if row[0][1] is request:
            if self._head_of(line) and not line.shut:
                self._announce(line)
        elif len(row) > 2 * line.queued + 64:  # mostly stale
            row[:] = [entry for entry in row if self._position.get(entry[1]) == entry[0]]
            heapq.heapify(row)

    def remove_requests(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.remove_request(request)

    def __bool__(self) -> bool:
        return self._admissible() is not None

    def __len__(self) -> int:
        return len(self._position) + len(self._dormant)

    def __contains__(self, request: object) -> bool:
        return request in self._position or request in self._dormant

    def __iter__(self) -> Iterator[Request]:
        yield from sorted(self._position, key=self._position.__getitem__)
        yield from self._dormant
