"""Who holds a place: the residents, those of them in a step, and those parked.

A resident keeps its KV and its worker slot.  A step is scheduled over a list of
the residents that take part in it; the others are parked: outside that list,
they cost the step nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from itertools import compress
from operator import attrgetter

from vllm.v1.request import Request

_user_of = attrgetter("output_rate_line.user.name")
_is_limited = attrgetter("output_rate_line.user.limited")


class Residents:
    """Every request that holds a place, in the order of admission (stock's ``running``)."""

    def __init__(self) -> None:
        self._seat: dict[Request, int] = {}
        self._next_seat = 0
        #: Residents with a prompt left to compute besides its last token.
        self.prefilling: dict[Request, None] = {}
        #: Admitted again after a preemption and without a new token since.
        self.owed: dict[Request, None] = {}
        self._displaced: set[Request] = set()  # preempted, and not admitted again yet
        self._adapters: Counter[int] = Counter()
        self._takers: tuple[list[str], Counter[str]] | None = None

    def __len__(self) -> int:
        return len(self._seat)

    def __contains__(self, request: Request) -> bool:
        return request in self._seat

    def everyone(self) -> list[Request]:
        """All residents in canonical order."""
        return list(self._seat)

    def in_order(self, requests: Iterable[Request]) -> list[Request]:
        """These residents in canonical order."""
        return sorted(requests, key=self._seat.__getitem__)

    def seat(self, request: Request) -> None:
        self._next_seat += 1
        self._seat[request] = self._next_seat
        self._takers = None
        if request in self._displaced:
            self._displaced.remove(request)
            self.owed[request] = None
        if request.lora_request:
            self._adapters[request.lora_request.lora_int_id] += 1

    def displace(self, request: Request) -> None:
        """The place was taken away: the request is owed a token when it returns."""
        self._displaced.add(request)

    def is_back(self, request: Request) -> bool:
        """Whether it was preempted and has no new token since, admitted again or about to be."""
        return request in self.owed or request in self._displaced

    def vacate(self, request: Request) -> bool:
        """The request gives its place up; False if it had none."""
        self._displaced.discard(request)
        if self._seat.pop(request, None) is None:
            return False
        self._takers = None
        self.prefilling.pop(request, None)
        self.owed.pop(request, None)
        if request.lora_request:
            adapter = request.lora_request.lora_int_id
            self._adapters[adapter] -= 1
            if not self._adapters[adapter]:
                del self._adapters[adapter]
        return True

    def advance(self, request: Request) -> None:
        """Note how far a step has brought the request's prompt."""
        if request.is_prefill_chunk and request.num_tokens - request.num_computed_tokens > 1:
            self.prefilling[request] = None
        else:
            self.prefilling.pop(request, None)

    def takers(self) -> tuple[list[str], Counter[str]]:
        """The users of the limited residents, one a resident, and how often each is there.

        Kept until somebody comes or goes, since most steps ask for the same; not to be changed.
        """
        if self._takers is None:
            names = limited_users(self._seat)
            self._takers = names, Counter(names)
        return self._takers

    def relimit(self) -> None:
        """Who is limited may be others now."""
        self._takers = None

    @property
    def num_adapters(self) -> int:
        """How many different LoRA adapters the residents use."""
        return len(self._adapters)


def limited_users(requests: Collection[Request]) -> list[str]:
    """The users of those of ``requests`` that are limited, one a request."""
    return list(compress(map(_user_of, requests), map(_is_limited, requests)))


def within_adapters(requests: list[Request], max_loras: int) -> list[Request]:
    """Those of ``requests`` whose adapters fit in one step, the earlier ones first.

    Stock vLLM 0.32.0 admits against the adapters of the running requests and
    asserts that they fit; a request that was parked meanwhile may not.
    """
    adapters: set[int] = set()
    fitting = []
    for request in requests:
        if request.lora_request:
            adapter = request.lora_request.lora_int_id
            if adapter not in adapters and len(adapters) == max_loras:
                continue
            adapters.add(adapter)
        fitting.append(request)
    return fitting
