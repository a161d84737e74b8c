"""What the main job shows: a live table while it runs, then the verdicts.

In a terminal the table is drawn in place; elsewhere (a pipe, a CI log) a line is printed now and
then, since a redrawn table would be noise there.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import pairwise
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table

from conformance.endpoint.promise import SECOND_NS, fullest
from conformance.endpoint.record import EngineRecord
from conformance.endpoint.record_measures import lateness_ns
from conformance.endpoint.trace import Stream, merged
from conformance.endpoint.verdict import ms, percentile
from gpu_e2e.semantics import Semantic
from gpu_e2e.workload import FREE, LIMITS, Run

REFRESH_S = 0.25
BUSY_NS = 500_000_000
LINE_EVERY_S = 3.0
_STYLE: dict[str, Any] = {
    "box": SIMPLE_HEAD,
    "title_justify": "left",
    "title_style": "bold",
    "caption_justify": "left",
    "padding": (0, 1, 0, 0),
}


class Screen:
    """One console for everything that the main job has to say."""

    def __init__(
        self, console: Console | None = None, clock: Callable[[], int] = time.monotonic_ns
    ):
        self.console = console or Console(highlight=False)
        self._clock = clock
        self._phase = ""

    def say(self, text: str) -> None:
        """A line of progress."""
        self._phase = text
        self.console.print(text, markup=False, soft_wrap=True)

    def phase(self, text: str) -> None:
        """Name what the live table shows from now on."""
        self._phase = text

    @contextlib.asynccontextmanager
    async def watching(self, run: Run) -> AsyncIterator[None]:
        """Show the run's streams while the body runs."""
        show = self._redraw if self.console.is_terminal else self._print_lines
        task = asyncio.create_task(show(run))
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _redraw(self, run: Run) -> None:
        with Live(console=self.console, auto_refresh=False, transient=True) as live:
            try:
                while True:
                    live.update(self.table(run), refresh=True)
                    await asyncio.sleep(REFRESH_S)
            finally:
                live.update(self.table(run), refresh=True)

    async def _print_lines(self, run: Run) -> None:
        while True:
            await asyncio.sleep(LINE_EVERY_S)
            parts = [f"{u} {len(i)} tokens {r:.1f} tok/s" for u, i, r, _ in self._users(run)]
            self.console.print(f"  {self._phase}: {', '.join(parts)}", soft_wrap=True)

    def _users(self, run: Run) -> list[tuple[str, list[int], float, list[Stream]]]:
        """Per user: its tokens' instants, its pace so far, its streams; the solo while alone."""
        now = self._clock()
        rows = []
        for user in (*LIMITS, FREE):
            streams = [s for s in run.of(user) if s.ask.name != "alone" or len(run.streams) == 1]
            instants = merged(streams)
            over = all(s.ended_ns is not None for s in streams)
            rows.append((user, instants, _pace(instants, now, over), streams))
        return [row for row in rows if row[3]]

    def table(self, run: Run) -> Table:
        """The streams as they are now, by the client's clock."""
        table = Table(title=self._phase, **_STYLE)
        table.add_column("user")
        for name in ("limit", "streams", "tokens", "tok/s", "longest gap"):
            table.add_column(name, justify="right")
        now = self._clock()
        for user, instants, pace, streams in self._users(run):
            limit = f"{float(LIMITS[user]):g}" if user in LIMITS else "none"
            live = sum(s.ended_ns is None for s in streams)
            row = (limit, f"{live} of {len(streams)}", str(len(instants)), f"{pace:.1f}")
            table.add_row(user, *row, f"{_longest(instants)} ms", style="bold")
            if user == FREE:
                continue  # its streams come one after another: too many rows, and nothing to share
            for stream in streams:
                own = _pace(stream.token_ns, now, stream.ended_ns is not None)
                tokens = str(len(stream.token_ns))
                gap = f"{_longest(stream.token_ns)} ms"
                state = "" if stream.ended_ns is None else stream.finish_reason or "broken"
                table.add_row(f"  {stream.label}", "", state, tokens, f"{own:.1f}", gap)
        return table

    def report(
        self, title: str, record: EngineRecord, run: Run, result: Sequence[Semantic]
    ) -> None:
        """The engine's figures beside the client's, then a verdict per semantic."""
        self.console.print(self._figures(title, record.within(*run.together), run))
        for semantic in result:
            mark = "[green]holds [/]" if semantic.ok else "[red bold]BROKEN[/]"
            self.console.print(f"{mark} {semantic.number} {semantic.title}", style="bold")
            for verdict in semantic.verdicts:
                sign = "[green]✓[/]" if verdict.ok else "[red]✗[/]"
                self.console.print(f"    {sign} {verdict.rule}: ", end="", soft_wrap=True)
                # Not as markup: a message may quote anything.
                self.console.print(verdict.message, markup=False, soft_wrap=True)

        if run.stall_ns > BUSY_NS and not all(semantic.ok for semantic in result):
            self.say(
                f"This host was busy: the client itself stood still for {ms(run.stall_ns)} ms. "
                "Repeat it on a quieter one before you blame the engine."
            )

    def _figures(self, title: str, together: EngineRecord, run: Run) -> Table:
        caption = (
            "engine: by the engine's record; client: by the client's clock, "
            f"whose own largest stall was {ms(run.stall_ns)} ms"
        )
        table = Table(title=f"{title}, all together", caption=caption, **_STYLE)
        table.add_column("user")
        columns = ("limit", "streams", "tokens", "engine\ntok/s", "client\ntok/s")
        for name in (*columns, "most in\n1 s", "longest\ngap ms", "late ms\np50 p99"):
            table.add_column(name, justify="right")
        for user in (*LIMITS, FREE):
            instants = [d.ns for d in together.of_user(user)]
            promise = together.promise(user)
            streams = [s for s in run.of(user) if s.ask.name != "alone"]
            late = lateness_ns(together, user)
            most = f"{fullest(instants, SECOND_NS)}"
            if promise is not None:
                most += f" of {promise.most(SECOND_NS)}"
            table.add_row(
                user,
                "none" if promise is None else f"{float(promise.rate):g}",
                f"{len(streams)}" if promise is not None else f"1 ({len(streams)}x)",
                f"{len(instants)}",
                f"{_pace(instants, 0, over=True):.2f}",
                f"{_pace(merged(streams), 0, over=True):.2f}",
                most,
                f"{_longest(instants)}",
                f"{ms(percentile(late, 50))} {ms(percentile(late, 99))}" if late else "",
            )
        return table


def _pace(instants: Sequence[int], now_ns: int, over: bool) -> float:
    """Tokens per second since the first one; up to the last one once it is over."""
    if not instants:
        return 0.0
    span = (instants[-1] if over else now_ns) - instants[0]
    return len(instants) * SECOND_NS / span if span > 0 else 0.0


def _longest(instants: Sequence[int]) -> float:
    return ms(max((b - a for a, b in pairwise(instants)), default=0))
