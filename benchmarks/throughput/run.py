"""Two real engines in one process, vLLM's and ours, that take turns with the same work."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.in_process import Mode, make_llm, prepare

NOT_REACHED = 10**6
USERS = 16

PARTS = ("add_request", "schedule", "update_from_output")
"""The scheduler's methods in which the two differ."""


@dataclass(frozen=True)
class Work:
    tokens: int
    """Of each request's output."""
    requests: int = 64


@dataclass
class Spent:
    """What a piece of work took, in seconds of the wall clock and of CPU (of all threads)."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    tokens: int = 0
    parts_s: Counter[str] = field(default_factory=Counter)
    """Of the wall clock, in each of `PARTS`."""

    @contextmanager
    def more(self) -> Iterator[None]:
        """Add the time that the block takes."""
        wall, cpu = time.monotonic(), time.process_time()
        yield
        self.wall_s += time.monotonic() - wall
        self.cpu_s += time.process_time() - cpu


def engines(mode: Mode) -> dict[str, Any]:
    """Both engines of this mode, by name. They live in this process, worker and all."""
    prepare(mode)
    both = {"stock": make_llm(mode, None), "adapter": make_llm(mode, {"default_rate": NOT_REACHED})}
    for llm in both.values():
        scheduler = llm.llm_engine.engine_core.engine_core.scheduler
        llm.parts_s = Counter()
        for name in PARTS:
            timed = _timed(getattr(scheduler, name), name, llm.parts_s)
            setattr(scheduler, name, timed)
    return both


def _timed(method: Callable[..., Any], name: str, parts_s: Counter[str]) -> Callable[..., Any]:
    @functools.wraps(method)
    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.monotonic()
        result = method(*args, **kwargs)
        parts_s[name] += time.monotonic() - start
        return result

    return timed


def _enqueue(llm: Any, work: Work) -> None:
    from vllm import SamplingParams

    params = [
        SamplingParams(
            max_tokens=work.tokens,
            ignore_eos=True,
            temperature=0.0,
            extra_args={"output_rate_user": f"user-{n % USERS}"},
        )
        for n in range(work.requests)
    ]
    llm.enqueue([f"Say {n}" for n in range(work.requests)], params, use_tqdm=False)


def side_by_side(both: dict[str, Any], work: Work, first: str) -> dict[str, Spent]:
    """Have both do the work, a step of one and then a step of the other, and who begins changes.

    A shared machine gives and takes in tenths of a second: so it does to both alike.
    """
    spent = {name: Spent() for name in both}
    for llm in both.values():
        llm.parts_s.clear()
    turns = sorted(both, key=first.__ne__)
    for name in turns:
        with spent[name].more():
            _enqueue(both[name], work)
    while turns:
        for name in turns:
            with spent[name].more():
                outputs = both[name].llm_engine.step()
            finished = [output for output in outputs if output.finished]
            spent[name].tokens += sum(len(output.outputs[0].token_ids) for output in finished)
        turns = [n for n in reversed(turns) if both[n].llm_engine.has_unfinished_requests()]
    for name, llm in both.items():
        spent[name].parts_s.update(llm.parts_s)
    return spent


def pairs(both: dict[str, Any], work: Work, count: int) -> Iterator[tuple[Spent, Spent]]:
    """So many pairs (stock, adapter), each time another one first."""
    side_by_side(both, work, "stock")  # the first run warms up
    for n in range(count):
        spent = side_by_side(both, work, ("stock", "adapter")[n % 2])
        yield spent["stock"], spent["adapter"]
