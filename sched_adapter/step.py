"""One step of the engine: what it can hold, and what was settled about it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from vllm.v1.request import Request

from sched_adapter.turns import Line, User


@dataclass(slots=True)
class Capacity:
    """What a step of this engine can hold."""

    places: int  # requests in a step: the active cap
    residents: int  # requests that hold KV and a worker slot
    reserve: int  # of these, not for users out of quota
    tokens: int  # a step's token budget
    chunk: int  # the most that one request gets of it
    max_model_len: int
    max_loras: int | None


@dataclass(slots=True)
class Step:
    """One step as settled."""

    number: int
    now_ns: int
    free: int  # places of residents that nobody holds
    vacant: int  # of these, not dealt to anybody yet
    everybody: bool = False
    asked: list[User[Request]] = field(default_factory=list)
    parked: bool = False  # some of those asked have more residents than tokens
    #: Where one question was put for all of them: what was taken, user -> tokens.
    taken: Counter[str] | None = None
    present: int = 0  # of these, and of those without limit, so many take part
    #: Users that the backend could not decide on, served all the same.
    failed_open: list[User[Request]] = field(default_factory=list)
    #: Those who take part, in stock's order or, where the budget is short, by turn.
    running: list[Request] = field(default_factory=list)
    #: Of these, prompts of users out of quota, which have what the others leave; at the end.
    last: list[Request] = field(default_factory=list)
    #: Also of these, prompts of users whose tokens are all pledged to others of their streams.
    unpledged: set[Request] = field(default_factory=set)
    #: Residents let in again after a preemption and without a token since, by line.
    owed: dict[Line[Request], list[Request]] = field(default_factory=dict)
    #: Who was dealt a place, in the order of turns; None is a line's next waiting request.
    dealt: list[tuple[Line[Request], Request | None]] = field(default_factory=list)
    #: Lines with waiting requests to admit.
    open: list[Line[Request]] = field(default_factory=list)
    crowded: bool = False  # more could be served than there are places, or tokens
    spare: int = 0  # tokens left over for prompts of residents out of quota
    all_asked: bool = False  # every limited user that is awake
    admitted: int = 0  # places given away so far
