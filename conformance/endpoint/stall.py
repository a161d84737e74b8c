"""How late this process was itself: the largest lag of its event loop.

A client's clock says when the client had read a token, which is no earlier than when it came. While
the client's loop is held up, tokens pile up and then seem to come at once. The largest such hold-up
is the J by which every judgement of a client's instants has to be forgiving.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from types import TracebackType

_EVERY_S = 0.002


class StallWatch:
    """Measures the loop's lag while it is entered: `async with StallWatch() as watch`."""

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns, every_s: float = _EVERY_S):
        self._clock = clock
        self._every_s = every_s
        self._task: asyncio.Task[None] | None = None
        self.worst_ns = 0

    async def _watch(self) -> None:
        last = self._clock()
        while True:
            await asyncio.sleep(self._every_s)
            now = self._clock()
            self.note(now - last - int(self._every_s * 1e9))
            last = now

    def note(self, lag_ns: int) -> None:
        """Take a measured lag into account."""
        self.worst_ns = max(self.worst_ns, lag_ns)

    async def __aenter__(self) -> StallWatch:
        self._task = asyncio.get_running_loop().create_task(self._watch())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
