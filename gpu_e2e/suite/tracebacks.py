"""The tracebacks in a server's log after it was told to end, but for one that is vLLM's own.

When vLLM's API server ends, it stops the engine's process, then cancels the task that reads from
it; that task's last word to the output handler is `EngineDeadError`. Only then is the handler
cancelled, from another thread: if the word gets there first, the handler logs it as a failure.
Nothing failed, and none of that code is ours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: The API server says so before it cancels what would speak of a dead engine. An engine that died
#: before was not stopped by it.
CLEANUP = "[shutdown] MPClient: cleaning up background resources"
FAILED = "AsyncLLM output_handler failed."
ERROR = "vllm.v1.engine.exceptions.EngineDeadError: "
FRAMES = [
    ("vllm/v1/engine/async_llm.py", "output_handler"),
    ("vllm/v1/engine/core_client.py", "get_output_async"),
]

_HEADER = "Traceback (most recent call last)"
# (APIServer pid=17) ERROR 11-30 05:22:36 [async_llm.py:906] what it says
_LINE = re.compile(
    r"(?P<process>\(\w+ pid=\d+\) )?"
    r"([A-Z]+ [\d-]+ [\d:]+ \[(?P<source>[^]:]+):\d+\] ?)?"
    r"(?P<text>.*)"
)
_FRAME = re.compile(r'  File "(?P<path>.+)", line \d+, in (?P<name>.+)')


@dataclass(frozen=True, slots=True)
class _Said:
    source: str  # the module whose logger wrote it, empty if it was none
    text: str


def unexpected(log: str) -> list[str]:
    """Who said it and its last line, of each traceback that is not vLLM's own at its end.

    `log` is what all processes of the server wrote since it was told to end.
    """
    by_process: dict[str, list[_Said]] = {}
    for line in log.splitlines():
        found = _LINE.fullmatch(line)
        assert found is not None  # it matches anything
        process = found["process"] or ""
        by_process.setdefault(process, []).append(_Said(found["source"] or "", found["text"]))
    return [
        f"{process or 'no process named: '}{_last(said, at)}"
        for process, said in by_process.items()
        for at, one in enumerate(said)
        if _HEADER in one.text and not (process.startswith("(APIServer ") and _own(said, at))
    ]


def _own(said: list[_Said], at: int) -> bool:
    """Whether the traceback that begins there is the one that vLLM's own shutdown may log."""
    end = _end(said, at)
    whole = said[at - 1 : end + 1]
    frames = [found for one in whole if (found := _FRAME.fullmatch(one.text))]
    return (
        at > 0
        and whole[0].text == FAILED
        and said[at].text == f"{_HEADER}:"
        and {one.source for one in whole} == {"async_llm.py"}
        and [f["name"] for f in frames] == [name for _, name in FRAMES]
        and all(f["path"].endswith(f"/{p}") for f, (p, _) in zip(frames, FRAMES, strict=True))
        and end < len(said)
        and said[end].text.startswith(ERROR)
        and any(one.text == CLEANUP for one in said[:at])
    )


def _end(said: list[_Said], at: int) -> int:
    """Where the line with the exception is: the first that is not indented."""
    end = at + 1
    while end < len(said) and said[end].text.startswith(" "):
        end += 1
    return end


def _last(said: list[_Said], at: int) -> str:
    end = _end(said, at)
    return said[end].text if end < len(said) else "cut off"
