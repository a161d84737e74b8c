"""Every token that a user was charged for, explained to the token.

    charged = counted by `usage` in whole answers
            + delivered by the engine to answers that were cut off by their client
            + lost: dispatched, and its request ended before (abort, look-ahead after a stop, stale)

The left side is the engine's ledger, the first term the server's answer to the client.
"""

from __future__ import annotations

from conformance.endpoint.trace import Stream
from conformance.endpoint.verdict import Verdict
from gpu_e2e.suite.play import Play


def whole(stream: Stream) -> bool:
    """Whether the client read the answer to its end."""
    return stream.error is None and not stream.cancelled and stream.completion_tokens is not None


def totals(play: Play) -> Verdict:
    """The identity above for every limited user of the play, and per answer for its usage."""
    wrong: list[str] = []
    charged = usage = cut = lost = refunded = 0
    record = play.record
    for user in record.users():
        if record.promise(user) is None:
            continue
        requests = record.by_request(user)
        own = {"charged": sum(d.charged for ds in requests.values() for d in ds)}
        own["lost"] = sum(sum(record.lost.get(req, {}).values()) for req in requests)
        own["usage"], matched = 0, set()
        for stream in play.streams:
            mine = [req for req in play.requests(stream) if req in requests]
            if not whole(stream) or not mine:
                continue
            matched |= set(mine)
            out = sum(record.delivered.get(req, 0) for req in mine)
            own["usage"] += stream.completion_tokens or 0
            if out != stream.completion_tokens:
                wrong.append(
                    f"{stream.label}: usage says {stream.completion_tokens} tokens, "
                    f"the engine delivered {out}"
                )
        own["cut"] = sum(record.delivered.get(req, 0) for req in requests if req not in matched)
        if own["charged"] != own["usage"] + own["cut"] + own["lost"]:
            wrong.append(f"{user}: {_sum(own)} does not add up")
        charged, usage = charged + own["charged"], usage + own["usage"]
        cut, lost = cut + own["cut"], lost + own["lost"]
        refunded += record.refunds.get(user, 0)
    figures = {
        "charged": charged,
        "usage": usage,
        "cut_off": cut,
        "lost": lost,
        "refunded": refunded,
    }
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        return Verdict("totals", False, wrong[0] + more, figures)
    message = _sum({"charged": charged, "usage": usage, "cut": cut, "lost": lost})
    return Verdict("totals", True, message, figures)


def _sum(own: dict[str, int]) -> str:
    text = f"{own['charged']} charged = {own['usage']} by usage"
    if own["cut"]:
        text += f" + {own['cut']} delivered to clients that had gone"
    return text + f" + {own['lost']} lost"
