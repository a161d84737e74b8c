"""Judge an endpoint by what its clients saw. Pure functions from streams to a `Verdict`.

Each is one rule of level 3 in SPEC.md and names it.

A client's clock is not the engine's: tokens that a stalled client reads late seem to come at once.
So a window counts as broken only if it holds more than `(W + burst + J) * rate + 1`, J (`stall_ns`)
the largest stall that the client measured in itself; gaps are forgiven J as well. What the engine
really did is for `record_verdicts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise

from conformance.endpoint.promise import DEFAULT_BURST_NS, SECOND_NS, Even, fullest
from conformance.endpoint.trace import Stream, merged
from conformance.endpoint.verdict import Verdict, ms, percentile

MIN_SECONDS = 10.0
REACHED = 0.99
# Streams of one user take turns; between two of them a token may be on its way to the client.
APART = 2


def pace(
    user: str,
    streams: Sequence[Stream],
    rate: Fraction,
    *,
    burst_ns: int = DEFAULT_BURST_NS,
    stall_ns: int = 0,
    min_seconds: float = MIN_SECONDS,
) -> Verdict:
    """All streams of the user together run at the limit, from the first token to the last.

    Needs a user who always wants more, and `min_seconds` of it.
    """
    instants = merged(list(streams))
    span_ns = instants[-1] - instants[0] if instants else 0
    seconds = span_ns / SECOND_NS
    if seconds < min_seconds:
        message = f"{user}: {len(instants)} tokens in {seconds:.1f} s, too short to judge a pace"
        return Verdict("S2-PACE-3", False, message, {"seconds": round(seconds, 2)})
    got = len(instants) / seconds
    limit = float(rate)
    most = Even(rate, burst_ns + stall_ns).most(span_ns) / seconds
    # A first token that was read late, or a last one, makes the span shorter or longer by J.
    least = REACHED * limit * seconds / (seconds + stall_ns / SECOND_NS)
    figures = {
        "tok_s": round(got, 2),
        "limit_tok_s": limit,
        "seconds": round(seconds, 2),
        "stall_ms": ms(stall_ns),
    }
    message = (
        f"{user}: {got:.2f} tok/s over {seconds:.1f} s, limit {limit:g} "
        f"({least:.2f} to {most:.2f} promised, J {ms(stall_ns)} ms)"
    )
    return Verdict("S2-PACE-3", least <= got <= most, message, figures)


def windows(
    user: str,
    streams: Sequence[Stream],
    rate: Fraction,
    *,
    burst_ns: int = DEFAULT_BURST_NS,
    stall_ns: int = 0,
) -> Verdict:
    """No window of any width holds more than `(W + burst + J) * rate + 1` tokens of the user."""
    instants = merged(list(streams))
    promise = Even(rate, burst_ns + stall_ns)
    worst = promise.worst(instants)
    figures: dict[str, object] = {
        "tokens": len(instants),
        "most_in_1s": fullest(instants, SECOND_NS),
        "promised_in_1s": Even(rate, burst_ns).most(SECOND_NS),
        "stall_ms": ms(stall_ns),
    }
    if worst is not None:
        message = f"{user}: {worst}, with J {ms(stall_ns)} ms allowed for"
        return Verdict("S2-WINDOWS-3", False, message, figures)
    message = (
        f"{user}: at most {figures['most_in_1s']} tokens in 1 s "
        f"({figures['promised_in_1s']} promised, J {ms(stall_ns)} ms)"
    )
    return Verdict("S2-WINDOWS-3", bool(instants), message, figures)


def sharing(
    user: str,
    streams: Sequence[Stream],
    *,
    apart: int = APART,
    rate: Fraction = Fraction(0),
    stall_ns: int = 0,
) -> Verdict:
    """While all streams of the user run, none of them gets ahead by more than `apart` tokens.

    A client that stalled reads all that came for one stream before it looks at the next: what a
    stream may get in J at the user's `rate` is forgiven.
    """
    apart += int(rate * stall_ns / SECOND_NS / max(1, len(streams)))
    figures: dict[str, object] = {"streams": len(streams)}
    if len(streams) < 2:
        return Verdict("S2-SHARING-3", True, f"{user}: one stream, nothing to share", figures)
    silent = [s.label for s in streams if not s.token_ns]
    if silent:
        return Verdict("S2-SHARING-3", False, f"{user}: {silent[0]} got no token at all", figures)
    start = max(s.token_ns[0] for s in streams)
    end = min(s.token_ns[-1] for s in streams)
    if start >= end:
        message = f"{user}: its {len(streams)} streams never ran all at once, nothing to judge"
        return Verdict("S2-SHARING-3", False, message, figures)
    counts = [0] * len(streams)
    order = sorted((ns, i) for i, s in enumerate(streams) for ns in s.token_ns if start < ns <= end)
    worst = 0
    for _, index in order:
        counts[index] += 1
        worst = max(worst, max(counts) - min(counts))
    figures |= {"spread": worst, "tokens": len(order)}
    message = f"{user}: {len(streams)} streams at most {worst} tokens apart ({apart} promised)"
    return Verdict("S2-SHARING-3", worst <= apart, message, figures)


def evenness(
    user: str,
    streams: Sequence[Stream],
    rate: Fraction,
    *,
    step_ns: int,
    stall_ns: int = 0,
    spacing: int = 1,
) -> Verdict:
    """A user who wants more never waits longer than `spacing / rate`, one step, and J.

    `step_ns` is the longest step that the deployment is expected to take. Judged while at least
    one of the user's streams has begun and goes on.
    """
    begun = sorted((s.token_ns[0], s.token_ns[-1]) for s in streams if s.token_ns)
    instants = merged(list(streams))
    gaps = []
    for before, after in pairwise(instants):
        if any(first <= before and after <= last for first, last in begun):
            gaps.append(after - before)
    most = int(spacing * SECOND_NS / rate) + step_ns + stall_ns
    longest = max(gaps, default=0)
    figures = {
        "longest_gap_ms": ms(longest),
        "p99_gap_ms": ms(percentile(gaps, 99)),
        "promised_ms": ms(most),
        "stall_ms": ms(stall_ns),
    }
    message = f"{user}: longest gap {ms(longest)} ms ({ms(most)} ms promised)"
    return Verdict("S2-EVEN-3", bool(gaps) and longest <= most, message, figures)


def completeness(streams: Sequence[Stream], expected: Mapping[str, int] | None = None) -> Verdict:
    """Every answer came whole: no error, a finish reason, as many tokens as the server counted.

    `expected` gives, by label, the tokens that an answer must have; without it, an answer that
    ended by length must have its `max_tokens`.
    """
    wrong = [why for s in streams if (why := _incomplete(s, (expected or {}).get(s.label)))]
    tokens = sum(len(s.token_ns) for s in streams)
    figures = {"answers": len(streams), "tokens": tokens, "incomplete": len(wrong)}
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        return Verdict("S3-WHOLE-3", False, wrong[0] + more, figures)
    message = f"{len(streams)} answers whole, {tokens} tokens"
    return Verdict("S3-WHOLE-3", bool(streams), message, figures)


def _incomplete(stream: Stream, expected: int | None) -> str | None:
    got, name = len(stream.token_ns), stream.label
    if stream.error is not None:
        return f"{name}: {stream.error}"
    if stream.cancelled:
        return f"{name}: cancelled by the client after {got} tokens"
    if stream.finish_reason not in ("stop", "length", "tool_calls"):
        return f"{name}: ended with finish reason {stream.finish_reason!r} after {got} tokens"
    if stream.completion_tokens != got:
        return f"{name}: {got} tokens came, usage says {stream.completion_tokens}"
    if expected is None and stream.finish_reason == "length":
        expected = stream.ask.max_tokens
    if expected is not None and got != expected:
        return f"{name}: {got} tokens, {expected} expected"
    return None


def identical(streams: Sequence[Stream], reference: Sequence[Stream]) -> Verdict:
    """Every answer has the token ids of an unlimited run of the same request at temperature 0.

    Answers are matched by prompt, length and endpoint; one without a counterpart fails.
    """
    known = {_question(s): s for s in reference if s.error is None and not s.cancelled}
    wrong = []
    for stream in streams:
        twin = known.get(_question(stream))
        if twin is None:
            wrong.append(f"{stream.label}: no unlimited run of the same request to compare with")
        elif not stream.token_ids or stream.token_ids != twin.token_ids:
            at = _first_difference(stream.token_ids, twin.token_ids)
            wrong.append(f"{stream.label}: differs from the unlimited run at token {at}")
    figures = {"answers": len(streams), "different": len(wrong)}
    if wrong:
        return Verdict("S3-SAME-3", False, wrong[0], figures)
    message = f"{len(streams)} answers identical to the unlimited run, token for token"
    return Verdict("S3-SAME-3", bool(streams), message, figures)


def _question(stream: Stream) -> tuple[str, str, int]:
    return stream.ask.door, stream.ask.prompt, stream.ask.max_tokens


def _first_difference(one: Sequence[int], other: Sequence[int]) -> int:
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))


def isolation(
    user: str,
    alone: Sequence[Stream],
    beside: Sequence[Stream],
    *,
    most: float,
    stall_ns: int = 0,
) -> Verdict:
    """Beside a capped crowd, the user's time to first token and gaps are what they were alone.

    `most` is the largest ratio of medians, beside over alone, after J was taken off.
    """
    figures: dict[str, object] = {}
    ratios = []
    for name, pick in (("ttft", _firsts), ("gap", _gaps)):
        before, after = pick(alone), pick(beside)
        if not before or not after:
            message = f"{user}: no tokens to compare ({name})"
            return Verdict("S4-ISOLATION-3", False, message, figures)
        for per_cent in (50, 99):
            figures[f"{name}_p{per_cent}_alone_ms"] = ms(percentile(before, per_cent))
            figures[f"{name}_p{per_cent}_beside_ms"] = ms(percentile(after, per_cent))
        calm = percentile(before, 50)
        ratio = max(0, percentile(after, 50) - stall_ns) / max(1, calm)
        figures[f"{name}_ratio"] = round(percentile(after, 50) / max(1, calm), 3)
        ratios.append(ratio)
    message = (
        f"{user}: time to first token {figures['ttft_ratio']} times, gap {figures['gap_ratio']} "
        f"times what it was alone (at most {most:g} promised, J {ms(stall_ns)} ms)"
    )
    return Verdict("S4-ISOLATION-3", max(ratios) <= most, message, figures)


def _firsts(streams: Sequence[Stream]) -> list[int]:
    return [ns for s in streams if (ns := s.first_token_ns()) is not None]


def _gaps(streams: Sequence[Stream]) -> list[int]:
    return [gap for s in streams for gap in s.gaps_ns()]


def recovery(
    user: str,
    cancelled: Sequence[Stream],
    after: Sequence[Stream],
    rate: Fraction,
    *,
    burst_ns: int = DEFAULT_BURST_NS,
    step_ns: int,
    stall_ns: int = 0,
    spacing: int = 1,
) -> Verdict:
    """After the user's streams were cancelled, the next one is served as if they were still there.

    Its first token comes within `spacing / rate`, one step (that of its prompt) and J; what was
    charged for the cancelled ones stays charged, so the windows hold across the cancellation.
    """
    rule = "S3-RECOVERY-3"
    ends = [s.ended_ns for s in cancelled if s.cancelled and s.ended_ns is not None]
    firsts = [s.token_ns[0] for s in after if s.token_ns]
    if len(ends) != len(cancelled) or not ends:
        message = f"{user}: {len(cancelled) - len(ends)} of its streams were not cancelled"
        return Verdict(rule, False, message)
    if not firsts:
        return Verdict(rule, False, f"{user}: no token after the cancellation")
    asked = min(s.started_ns for s in after)
    waited = min(firsts) - max(asked, max(ends))
    most = int(spacing * SECOND_NS / rate) + step_ns + stall_ns
    instants = sorted([*merged(list(cancelled)), *merged(list(after))])
    worst = Even(rate, burst_ns + stall_ns).worst(instants)
    figures = {"first_token_ms": ms(waited), "promised_ms": ms(most), "cancelled": len(ends)}
    message = (
        f"{user}: first token {ms(waited)} ms after {len(ends)} cancellations ({ms(most)} promised)"
    )
    if worst is not None:
        message += f"; {worst}"
    return Verdict(rule, waited <= most and worst is None, message, figures)
