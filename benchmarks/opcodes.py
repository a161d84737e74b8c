"""Count the bytecode instructions that a call executes: a cost that no busy machine changes.

What it does not see: loops inside C, such as `list(d)` of a large dict. Those show in thread CPU.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple


class Counted(NamedTuple):
    """An answer, and the instructions that it took."""

    opcodes: int
    answer: Any


def count(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Counted:
    """Call it; count the instructions of all Python code that it runs.

    The first count of a function in a process may miss some (CPython 3.12 instruments code when
    it is first traced), so have it run counted once before. The garbage collector rests
    meanwhile: what it finds, and the finalizers that it runs, would differ from run to run.
    """
    opcodes = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal opcodes
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        if event == "opcode":
            opcodes += 1
        return trace

    collecting, before = gc.isenabled(), sys.gettrace()
    gc.disable()
    sys.settrace(trace)
    try:
        answer = call(*args, **kwargs)
    finally:
        sys.settrace(before)
        if collecting:
            gc.enable()
    return Counted(opcodes, answer)
