"""How much memory the processes of a server hold, and whether that stays so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from conformance.endpoint.verdict import Verdict

MIB = 1 << 20
#: What a process may hold more at the end than after its first minute. Ten times what was seen in
#: 5 minutes (0.6 MiB): allocators settle for long. A leak of 5 KiB a request is more than this.
SLACK_BYTES = 8 * MIB

Samples = Sequence[tuple[float, Mapping[str, int]]]  # seconds since the start; bytes by process


def resident(group: int) -> dict[str, int]:
    """Bytes of memory (VmRSS) of each process of a group, by the name that vLLM gives it."""
    found: dict[str, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # After the command in brackets: state, parent, group.
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(stat[2]) != group:
                continue
            title = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            status = (folder / "status").read_text()
        except (OSError, ValueError):
            continue  # it has just ended
        name = _name(title, int(folder.name) == group)
        kib = next((line.split()[1] for line in status.splitlines() if line[:6] == "VmRSS:"), "0")
        found[name] = found.get(name, 0) + int(kib) * 1024
    return found


def _name(title: str, first: bool) -> str:
    if "VLLM::" in title:
        return title.split("VLLM::")[1].split()[0].rstrip("_0123456789")
    return "API server" if first else "helpers"


def flat(samples: Samples, process: str, seconds: float, slack: int = SLACK_BYTES) -> Verdict:
    """A process holds no more towards the end than after the first minute.

    Each is the most in a tenth of `seconds`, or in 10 s; a run shorter than 5 minutes has its
    "first minute" after a fifth.
    """
    start, span = min(60.0, seconds / 5), max(10.0, seconds / 10)
    early = [m[process] for t, m in samples if start <= t <= start + span and process in m]
    late = [m[process] for t, m in samples if t >= seconds - span and process in m]
    if not early or not late:
        return Verdict("memory-flat", False, f"{process}: no samples to compare", {})
    grown = max(late) - max(early)
    figures = {"early_mib": max(early) // MIB, "late_mib": max(late) // MIB}
    message = (
        f"{process}: {max(late) / MIB:.0f} MiB at the end, {max(early) / MIB:.0f} after "
        f"{start:.0f} s ({grown / MIB:+.1f}; at most {slack // MIB} more)"
    )
    return Verdict("memory-flat", grown <= slack, message, figures)
