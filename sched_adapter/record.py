"""The engine's own record: who got which token when, by the engine's clock.

Off unless asked for.  A file of JSON lines, one event a line, the first one
``meta``.  Instants are ``time.monotonic_ns()`` of the engine process, which on
one machine is the same clock for every process.

=========== ================================================================
event       keys besides ``e`` and ``ns``
=========== ================================================================
meta        format, clock, limiter, burst_ns, default_rate, rates
arrive      user, req: the scheduler got the request, whose user this is
dispatch    step, user, req, charged: one position that will be sampled
refund      user, n: tokens taken for this step and not used by it
output      user, req, n: tokens delivered
lost        user, req, n, why: positions dispatched that nobody will get
throttled   user, ready_ns: the user is out of quota until then
wait        end_ns, woke: the engine slept because all were out of quota
finish      user, req, status, tokens: tokens delivered in all
rate        user, rate: tokens/s from here on; null is the default, or none
truncated   the record is full; nothing follows
=========== ================================================================
"""

from __future__ import annotations

import atexit
import json
from pathlib import Path
from typing import IO, Any

FORMAT = 1

#: Events kept in one record; about 250 MB at most.
MAX_EVENTS = 2_000_000

_FLUSH_EVERY = 512
_FLUSH_AFTER_NS = 200_000_000

# Made once: `json.dumps` with separators makes one for every event.
_encode = json.JSONEncoder(separators=(",", ":")).encode


class Recorder:
    """Writes events to ``path``; after ``max_events`` it says so once and stops.

    A disk that fails costs the record, never a request: the file is closed and
    ``error`` keeps the reason.
    """

    def __init__(self, path: str | Path, meta: dict[str, Any], max_events: int = MAX_EVENTS):
        self._left = max_events
        self._pending: list[str] = []
        self._flushed_ns = 0
        self.error: OSError | None = None
        self._file: IO[str] | None = None
        try:
            self._file = open(path, "w", encoding="utf-8")  # noqa: SIM115 - closed by close()
        except OSError as error:
            self.error = error
        atexit.register(self.close)
        self._write({"e": "meta", "ns": 0, "format": FORMAT, "clock": "monotonic_ns", **meta}, 0)
        self.flush()

    def event(self, kind: str, ns: int, **keys: Any) -> None:
        """Note one event at instant ``ns``."""
        if self._file is None or self._left < 0:
            return
        self._left -= 1
        if self._left < 0:
            kind, keys = "truncated", {}
        self._write({"e": kind, "ns": ns, **keys}, ns)

    def _write(self, event: dict[str, Any], ns: int) -> None:
        self._pending.append(_encode(event))
        if len(self._pending) >= _FLUSH_EVERY or ns - self._flushed_ns > _FLUSH_AFTER_NS:
            self._flushed_ns = ns
            self.flush()

    def flush(self) -> None:
        if self._file is None or not self._pending:
            return
        lines, self._pending = self._pending, []
        try:
            self._file.write("\n".join(lines) + "\n")
            self._file.flush()
        except OSError as error:
            self.error = error
            self._file = None

    def close(self) -> None:
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None


def read(path: str | Path) -> list[dict[str, Any]]:
    """The events of a record, oldest first.

    A last line that was cut off by the end of the engine is left out.  Raises
    ValueError where the file is no record of this format.
    """
    lines = Path(path).read_text(encoding="utf-8").split("\n")
    events: list[dict[str, Any]] = [json.loads(line) for line in lines[:-1] if line]
    if not events or events[0].get("e") != "meta":
        raise ValueError(f"{path}: not an engine record (its first line should be a meta event)")
    if events[0].get("format") != FORMAT:
        raise ValueError(
            f"{path}: record format {events[0].get('format')}, this version reads {FORMAT}"
        )
    return events
