"""Every token that a user was charged for, explained to the token.

    charged = counted by `usage` in whole answers
            + delivered beyond a stop string, which the API server finds: it aborts the request then
            + delivered by the engine to answers that were cut off by their client
            + lost: dispatched, and its request ended before (abort, look-ahead after a stop, stale)

The left side is the engine's ledger, the first term the server's answer to the client.
"""

from __future__ import annotations

from conformance.endpoint.record import Dispatch, EngineRecord
from conformance.endpoint.trace import Stream
from conformance.endpoint.verdict import Verdict
from gpu_e2e.suite.play import Play

_PARTS = ("usage", "beyond", "cut", "lost")


def whole(stream: Stream) -> bool:
    """Whether the client read the answer to its end."""
    return stream.error is None and not stream.cancelled and stream.completion_tokens is not None


def totals(play: Play) -> Verdict:
    """The identity above for every limited user of the play, and per answer for its usage."""
    wrong: list[str] = []
    charged = usage = beyond = cut = lost = refunded = 0
    record = play.record
    by_user: dict[str, dict[str, list[Dispatch]]] = {}
    for req, dispatches in record.by_request().items():
        by_user.setdefault(dispatches[0].user, {})[req] = dispatches
    owner = {req: user for user, requests in by_user.items() for req in requests}
    answers: dict[str, list[Stream]] = {}
    for stream in filter(whole, play.streams):
        for user in {owner[req] for req in play.requests(stream) if req in owner}:
            answers.setdefault(user, []).append(stream)
    for user, requests in by_user.items():
        if record.promise(user) is None:
            continue
        own = {"charged": sum(d.charged for ds in requests.values() for d in ds)}
        own["lost"] = sum(sum(record.lost.get(req, {}).values()) for req in requests)
        own["usage"], own["beyond"], matched = 0, 0, set()
        for stream in answers.get(user, ()):
            mine = [req for req in play.requests(stream) if req in requests]
            matched |= set(mine)
            out = sum(record.delivered.get(req, 0) for req in mine)
            told = stream.completion_tokens or 0
            own["usage"] += told
            if stream.finish_reason == "stop" and all(_aborted(record, req) for req in mine):
                own["beyond"] += max(0, out - told)
                out = min(out, told)
            if out != told:
                wrong.append(
                    f"{stream.label}: usage says {told} tokens, the engine delivered {out}"
                )
        own["cut"] = sum(record.delivered.get(req, 0) for req in requests if req not in matched)
        if own["charged"] != sum(own[part] for part in _PARTS):
            wrong.append(f"{user}: {_sum(own)} does not add up")
        charged, usage = charged + own["charged"], usage + own["usage"]
        cut, lost, beyond = cut + own["cut"], lost + own["lost"], beyond + own["beyond"]
        refunded += record.refunds.get(user, 0)
    figures = {
        "charged": charged,
        "usage": usage,
        "beyond_stop": beyond,
        "cut_off": cut,
        "lost": lost,
        "refunded": refunded,
    }
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        return Verdict("totals", False, wrong[0] + more, figures)
    sums = {"charged": charged, "usage": usage, "beyond": beyond, "cut": cut, "lost": lost}
    message = _sum(sums)
    return Verdict("totals", True, message, figures)


def _sum(own: dict[str, int]) -> str:
    text = f"{own['charged']} charged = {own['usage']} by usage"
    if own["beyond"]:
        text += f" + {own['beyond']} beyond a stop string"
    if own["cut"]:
        text += f" + {own['cut']} delivered to clients that had gone"
    return text + f" + {own['lost']} lost"


def _aborted(record: EngineRecord, req: str) -> bool:
    return req in record.finishes and "ABORT" in record.finishes[req].status
