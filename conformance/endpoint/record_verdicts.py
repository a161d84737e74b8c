"""Judge an engine by its own record. Pure functions from a record to a `Verdict`.

Every rule names what it needs of the workload: a rate or an evenness can only be judged while the
user always wants more, an undisturbed user only while it has a request.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

from conformance.endpoint.promise import SECOND_NS, Promise, fullest
from conformance.endpoint.record import EngineRecord
from conformance.endpoint.record_measures import (
    gaps_while_wanting,
    step_times,
    stream_gaps,
)
from conformance.endpoint.verdict import Verdict, ms, percentile

MIN_SECONDS = 10.0
REACHED = 0.99
IN_FLIGHT = 2  # steps that an asynchronous engine has under way
OVERSLEPT_NS = 50_000_000  # the engine looks again after 50 ms at the latest
STALLED = 10  # times that at most, where the host runs nobody for a while


def whole(record: EngineRecord) -> Verdict:
    """The record has dispatches and was not cut off: only then do the others mean anything."""
    events = len(record.dispatches)
    if record.truncated:
        why = f"the record is full and was cut after {events} dispatches: judge a shorter run"
        return Verdict("record-whole", False, why, {"dispatches": events})
    if not events:
        why = "the record holds no dispatch: is the plugin loaded, and is the record switched on?"
        return Verdict("record-whole", False, why, {"dispatches": 0})
    return Verdict("record-whole", True, f"{events} dispatches", {"dispatches": events})


def bound(record: EngineRecord, user: str, promise: Promise) -> Verdict:
    """No closed window of the user's dispatches holds more than promised, at any width."""
    instants = [d.ns for d in record.of_user(user)]
    worst = promise.worst(instants)
    figures: dict[str, object] = {
        "tokens": len(instants),
        "most_in_1s": fullest(instants, SECOND_NS),
        "promised_in_1s": promise.most(SECOND_NS),
    }
    if worst is not None:
        return Verdict("bound", False, f"{user}: {worst}", figures)
    message = (
        f"{user}: all windows of {len(instants)} tokens within the promise; "
        f"at most {figures['most_in_1s']} in 1 s, {figures['promised_in_1s']} promised"
    )
    return Verdict("bound", bool(instants), message, figures)


def rate(
    record: EngineRecord,
    user: str,
    promise: Promise,
    *,
    streams: int = 1,
    min_seconds: float = MIN_SECONDS,
) -> Verdict:
    """From its first token on, a user who always wants more gets its rate, and not more.

    At least 0.99 of what the limiter reaches with the steps seen, at most its bound. A single step
    that outlasts the saved-up quota loses quota by definition; that time is taken off and named.
    """
    instants = [d.ns for d in record.of_user(user)]
    span_ns = instants[-1] - instants[0] if instants else 0
    seconds = span_ns / SECOND_NS
    limit = float(promise.rate)
    if seconds < min_seconds:
        message = f"{user}: {len(instants)} tokens in {seconds:.1f} s, too short to judge a rate"
        return Verdict("rate", False, message, {"seconds": round(seconds, 2)})
    got = len(instants) / seconds
    steps = step_times(record.within(instants[0], instants[-1]))
    usual = percentile(steps, 90)
    reach = promise.reach(usual, streams)
    lost = sum(max(0, step - promise.saved_ns(usual)) for step in steps) / SECOND_NS
    least = REACHED * float(reach) * (1 - lost / seconds) if reach is not None else 0.0
    most = promise.most(span_ns) / seconds
    figures: dict[str, object] = {
        "tok_s": round(got, 2),
        "limit_tok_s": limit,
        "seconds": round(seconds, 2),
        "least_tok_s": round(least, 2),
        "most_tok_s": round(most, 2),
        "lost_to_long_steps_s": round(lost, 3),
    }
    ok = least <= got <= most
    message = (
        f"{user}: {got:.2f} tok/s over {seconds:.1f} s, limit {limit:g} "
        f"({least:.2f} to {most:.2f} promised)"
    )
    if reach is None:
        message += f"; in steps of {ms(usual)} ms its streams cannot use more"
    if lost:
        message += f", {lost:.2f} s lost to long steps"
    return Verdict("rate", ok, message, figures)


def spread(record: EngineRecord, user: str, most: int = 1) -> Verdict:
    """From when all its streams had a token until the first ends, none is ahead by more than one.

    Judges the user's requests that overlap all others; needs them to be of one priority.
    """
    requests = record.by_request(user)
    figures: dict[str, object] = {"streams": len(requests)}
    if len(requests) < 2:
        return Verdict("spread", True, f"{user}: one stream, nothing to share", figures)
    start = max(ds[0].ns for ds in requests.values())
    end = min(ds[-1].ns for ds in requests.values())
    if start >= end:
        message = f"{user}: its {len(requests)} streams never ran all at once, nothing to judge"
        return Verdict("spread", False, message, figures)
    counts: Counter[str] = Counter(dict.fromkeys(requests, 0))
    worst, at = 0, start
    together = [d for d in record.of_user(user) if start < d.ns <= end]
    for index, dispatch in enumerate(together):
        counts[dispatch.req] += 1
        if index + 1 < len(together) and together[index + 1].ns == dispatch.ns:
            continue  # inside one step there is no order
        apart = max(counts.values()) - min(counts.values())
        if apart > worst:
            worst, at = apart, dispatch.ns
    figures |= {"spread": worst, "tokens": len(together)}
    message = f"{user}: {len(requests)} streams at most {worst} tokens apart over {len(together)}"
    if worst > most:
        message += f" (at {at} ns; {most} promised)"
    return Verdict("spread", worst <= most, message, figures)


def evenness(
    record: EngineRecord,
    user: str,
    promise: Promise,
    *,
    late_ns: int | None = None,
    overslept_ns: int = OVERSLEPT_NS,
) -> Verdict:
    """Between two tokens of a user who wants more: the promised spacing, and the step it falls in.

    So no step of anybody may pass by once the token was due, and if the engine waited for the due
    instant it may have woken up `overslept_ns` after it at most, in 95 of 100 gaps; ten times that
    at worst, since no engine wakes while its host stalls. How long a step takes is not the
    limiter's: `late_ns` bounds that too, on a host where it is known. The batch must have room.
    """
    spacing = promise.spacing_ns()
    steps = sorted({ns for ns, _ in record.steps()})
    waits = [w.ns for w in record.waits]
    gaps = gaps_while_wanting(record, user)
    missed, longest, latest, worst_at = 0, 0, 0, 0
    overslept = [0]
    for before, after in gaps:
        due = before + spacing
        missed += max(0, bisect_left(steps, after) - bisect_left(steps, due))
        latest = max(latest, after - due)
        last_wait = bisect_left(waits, after) - 1
        if last_wait >= 0:
            overslept.append(min(record.waits[last_wait].end_ns, after) - due)
        if after - before > longest:
            longest, worst_at = after - before, before
    figures: dict[str, object] = {
        "longest_gap_ms": ms(longest),
        "p99_gap_ms": ms(percentile([b - a for a, b in gaps], 99)),
        "spacing_ms": ms(spacing),
        "late_ms": ms(latest),
        "missed_steps": missed,
        "overslept_ms": ms(max(overslept)),
        "overslept_p95_ms": ms(max(0, percentile(overslept, 95))),
    }
    ok = bool(gaps) and missed == 0 and percentile(overslept, 95) <= overslept_ns
    ok = ok and max(overslept) <= STALLED * overslept_ns
    ok = ok and (late_ns is None or latest <= late_ns)
    message = (
        f"{user}: longest gap {ms(longest)} ms (spacing {ms(spacing)} ms, at most {ms(latest)} ms "
        f"late), {missed} steps passed it by, overslept by {ms(max(overslept))} ms at most"
    )
    if not ok:
        message += f"; longest from {worst_at} ns" if gaps else "; no gap to judge"
    return Verdict("evenness", ok, message, figures)


def undisturbed(record: EngineRecord, user: str) -> Verdict:
    """A user who is not throttled is in every step from its request's first token to its last.

    And the engine does not wait in between. Needs a batch with room for it.
    """
    steps = sorted({ns for ns, _ in record.steps()})
    tokens = missed = 0
    held: list[str] = []
    for req, dispatches in record.by_request(user).items():
        first, last = dispatches[0].ns, dispatches[-1].ns
        own = {d.ns for d in dispatches}
        between = bisect_left(steps, last + 1) - bisect_left(steps, first)
        missed += between - len(own)
        tokens += len(dispatches)
        held += [req for w in record.waits if w.ns > first and w.end_ns < last]
    figures: dict[str, object] = {"tokens": tokens, "missed_steps": missed, "waits": len(held)}
    ok = tokens > 0 and missed == 0 and not held
    message = (
        f"{user}: {tokens} tokens, {missed} engine steps ran without it, "
        f"the engine waited {len(held)} times while it had work"
    )
    return Verdict("undisturbed", ok, message, figures)


def unslowed(
    record: EngineRecord, user: str, alone: EngineRecord, most_ratio: float = 2.0
) -> Verdict:
    """Half of a user's tokens follow the last as soon as they did when the user was alone.

    What `undisturbed` cannot see: an engine that runs no step at all while another is throttled.
    The ratio is for gross faults; a busy machine moves it too.
    """
    gaps = [percentile(stream_gaps(part, user), 50) for part in (alone, record)]
    figures: dict[str, object] = {"alone_gap_ms": ms(gaps[0]), "beside_gap_ms": ms(gaps[1])}
    if not all(gaps):
        return Verdict("unslowed", False, f"{user}: no gaps to compare", figures)
    ratio = gaps[1] / gaps[0]
    figures["ratio"] = round(ratio, 3)
    message = f"{user}: median gap {ms(gaps[1])} ms beside the others, {ms(gaps[0])} ms alone"
    return Verdict("unslowed", ratio <= most_ratio, message, figures)


def ledger(record: EngineRecord) -> Verdict:
    """Every position dispatched was delivered or is accounted as lost, request by request.

    Judges requests that have finished; a limited user's are all charged, an unlimited one's none.
    What an unlimited user had in flight at its end, the engine need not follow.
    """
    wrong: list[str] = []
    dispatched = delivered = lost = unfollowed = open_requests = 0
    for req, dispatches in record.by_request().items():
        user = dispatches[0].user
        out, gone = record.delivered.get(req, 0), sum(record.lost.get(req, {}).values())
        limited = record.meta["rates"].get(user, record.meta["default_rate"]) is not None
        charged = sum(d.charged for d in dispatches)
        if charged != (len(dispatches) if limited else 0):
            wrong.append(f"{req} of {user}: {len(dispatches)} dispatched, {charged} charged")
        finish = record.finishes.get(req)
        if finish is None:
            open_requests += 1
            continue
        dispatched, delivered, lost = dispatched + len(dispatches), delivered + out, lost + gone
        untold = len(dispatches) - out - gone
        if not 0 <= untold <= (0 if limited else IN_FLIGHT):
            wrong.append(f"{req}: {len(dispatches)} dispatched, {out} delivered, {gone} lost")
        unfollowed += untold
        if finish.tokens != out:
            wrong.append(f"{req}: finished with {finish.tokens} tokens, {out} delivered")
    figures: dict[str, object] = {
        "dispatched": dispatched,
        "delivered": delivered,
        "lost": lost,
        "unfollowed": unfollowed,
        "refunded": sum(record.refunds.values()),
        "unfinished_requests": open_requests,
    }
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        return Verdict("ledger", False, wrong[0] + more, figures)
    message = f"{dispatched} dispatched = {delivered} delivered + {lost} lost"
    if unfollowed:
        message += f" + {unfollowed} of unlimited users in flight at their end"
    return Verdict("ledger", dispatched > 0, message, figures)


def batches(record: EngineRecord, cap: int | None = None) -> Verdict:
    """How many positions a step sampled: never more than the active cap, if one is given."""
    sizes = [count for _, count in record.steps()]
    most = max(sizes, default=0)
    figures: dict[str, object] = {
        "steps": len(sizes),
        "p50": percentile(sizes, 50),
        "p99": percentile(sizes, 99),
        "most": most,
    }
    message = f"{len(sizes)} steps, at most {most} sequences, half at most {figures['p50']}"
    if cap is not None:
        message += f", cap {cap}"
    return Verdict("batches", cap is None or most <= cap, message, figures)
