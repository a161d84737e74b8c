"""Each client verdict accepts right data and rejects data with one thing wrong."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import pytest

from conformance.endpoint import verdicts
from conformance.endpoint.trace import Ask, Stream

MS = 1_000_000
SECOND = 1_000_000_000
RATE = Fraction(20)
START = 7_654_321_000_000


def stream(instants, *, user="alice", name="", prompt="p", **changes):
    instants = list(instants)
    return dataclasses.replace(
        Stream(
            ask=Ask(user=user, prompt=prompt, max_tokens=len(instants), name=name),
            started_ns=START - 10 * MS,
            token_ns=instants,
            token_ids=list(range(len(instants))),
            finish_reason="length",
            completion_tokens=len(instants),
            ended_ns=START,
        ),
        **changes,
    )


def paced(count=240, streams=4, every=50 * MS, burst=2, start=START):
    """`count` tokens dealt to the streams in turn, the first `burst` + 1 of them at once."""
    instants = [start + max(0, i - burst) * every for i in range(count)]
    return [stream(instants[i::streams], name=f"s{i}") for i in range(streams)]


def test_pace_accepts_the_limit_and_rejects_faster_slower_and_too_short():
    good = verdicts.pace("alice", paced(), RATE)
    assert good.ok, good
    assert good.figures["tok_s"] == pytest.approx(20.25, abs=0.01)
    assert not verdicts.pace("alice", paced(every=48 * MS), RATE).ok
    assert not verdicts.pace("alice", paced(every=52 * MS), RATE).ok
    short = verdicts.pace("alice", paced(count=100), RATE)
    assert not short.ok
    assert "too short" in short.message


def test_pace_of_each_stream_on_its_own_is_not_the_users():
    quadruple = [stream(START + i * 50 * MS for i in range(240)) for _ in range(4)]
    assert not verdicts.pace("alice", quadruple, RATE).ok


def test_windows_reject_one_token_too_many_and_forgive_only_the_stall():
    good = paced()
    assert verdicts.windows("alice", good, RATE).ok
    crowded = [*good, stream([good[0].token_ns[20] + 1])]
    verdict = verdicts.windows("alice", crowded, RATE)
    assert not verdict.ok
    assert "promised" in verdict.message
    assert verdicts.windows("alice", crowded, RATE, stall_ns=50 * MS).ok
    assert not verdicts.windows("alice", crowded, RATE, stall_ns=40 * MS).ok
    assert not verdicts.windows("alice", [], RATE).ok


def test_sharing_rejects_a_stream_that_starves_or_is_silent():
    assert verdicts.sharing("alice", paced()).ok
    greedy = paced(streams=2)
    greedy.append(stream([START, START + 12 * SECOND]))
    verdict = verdicts.sharing("alice", greedy)
    assert not verdict.ok
    assert verdict.figures["spread"] > 100
    assert not verdicts.sharing("alice", [*paced(), stream([])]).ok
    one_after_the_other = [paced(20, 1)[0], paced(20, 1, start=START + 5 * SECOND)[0]]
    assert not verdicts.sharing("alice", one_after_the_other).ok


def test_sharing_forgives_what_a_stream_gets_in_a_stall_and_no_more():
    streams = paced(streams=2)
    ahead = [ns - 600 * MS if 50 < i < 100 else ns for i, ns in enumerate(streams[0].token_ns)]
    streams[0].token_ns = sorted(ahead)
    assert verdicts.sharing("alice", streams).figures["spread"] > 2
    assert not verdicts.sharing("alice", streams).ok
    assert not verdicts.sharing("alice", streams, rate=RATE, stall_ns=300 * MS).ok
    assert verdicts.sharing("alice", streams, rate=RATE, stall_ns=600 * MS).ok


def test_evenness_rejects_a_gap_and_ignores_silence_without_a_request():
    step = 10 * MS
    assert verdicts.evenness("alice", paced(), RATE, step_ns=step).ok
    late = paced()
    for s in late:
        s.token_ns = [ns + (15 * MS if ns > START + 5 * SECOND else 0) for ns in s.token_ns]
    assert not verdicts.evenness("alice", late, RATE, step_ns=step).ok
    assert verdicts.evenness("alice", late, RATE, step_ns=step, stall_ns=6 * MS).ok
    apart = [paced(20, 1)[0], paced(20, 1, start=START + 5 * SECOND)[0]]
    assert verdicts.evenness("alice", apart, RATE, step_ns=step).ok
    bursts = [stream(START + i // 20 * SECOND for i in range(240))]
    assert not verdicts.evenness("alice", bursts, RATE, step_ns=step).ok


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"error": "HTTP 429: slow down"}, "429"),
        ({"finish_reason": None}, "finish reason None"),
        ({"finish_reason": "abort"}, "abort"),
        ({"completion_tokens": 61}, "usage says 61"),
        ({"completion_tokens": None}, "usage says None"),
        ({"cancelled": True}, "cancelled"),
        ({"ask": Ask("alice", "p", 61)}, "61 expected"),
    ],
)
def test_completeness_names_what_is_wrong(wrong, says):
    streams = paced()
    assert verdicts.completeness(streams).ok
    streams[2] = dataclasses.replace(streams[2], **wrong)
    verdict = verdicts.completeness(streams)
    assert not verdict.ok
    assert says in verdict.message


def test_completeness_holds_an_end_of_sequence_to_its_place():
    ended = [stream(range(40), name="s", finish_reason="stop")]
    assert verdicts.completeness(ended, {"s": 40}).ok
    assert not verdicts.completeness(ended, {"s": 41}).ok
    assert not verdicts.completeness([]).ok


def test_identical_rejects_another_token_a_missing_one_and_a_missing_twin():
    one = stream(range(5))
    assert verdicts.identical([one], [stream(range(5), user="free")]).ok
    other = stream(range(5), token_ids=[0, 1, 9, 3, 4])
    verdict = verdicts.identical([one], [other])
    assert not verdict.ok
    assert "at token 2" in verdict.message
    assert not verdicts.identical([one], [stream(range(5), token_ids=[0, 1, 2, 3])]).ok
    assert not verdicts.identical([one], [stream(range(5), prompt="q")]).ok
    assert not verdicts.identical([one], [stream(range(5), error="HTTP 500")]).ok
    nothing = stream(range(5), token_ids=[])
    assert not verdicts.identical([nothing], [nothing]).ok


def test_isolation_rejects_a_slower_neighbour():
    alone = [stream(START + i * 10 * MS for i in range(50))]
    slower = [stream(START + i * 13 * MS for i in range(50))]
    assert verdicts.isolation("bob", alone, alone, most=1.05).ok
    verdict = verdicts.isolation("bob", alone, slower, most=1.05)
    assert not verdict.ok
    assert verdict.figures["gap_ratio"] == 1.3
    late = [dataclasses.replace(s, started_ns=START - 20 * MS) for s in alone]
    assert not verdicts.isolation("bob", alone, late, most=1.05).ok
    assert not verdicts.isolation("bob", alone, [stream([])], most=1.05).ok


def test_recovery_rejects_a_user_who_waits_and_one_who_is_forgotten():
    gone = [
        stream(s.token_ns, name=s.label, cancelled=True, ended_ns=START + 2 * SECOND)
        for s in paced(40)
    ]
    again = START + 2 * SECOND
    soon = [stream([again + 60 * MS], started_ns=again)]
    late = [stream([again + 61 * MS], started_ns=again)]
    assert verdicts.recovery("alice", gone, soon, RATE, step_ns=10 * MS).ok
    assert not verdicts.recovery("alice", gone, late, RATE, step_ns=10 * MS).ok
    assert not verdicts.recovery("alice", gone, [stream([])], RATE, step_ns=10 * MS).ok
    assert not verdicts.recovery("alice", paced(40), soon, RATE, step_ns=10 * MS).ok
    # A debt that was dropped with the streams shows as a full quota too early.
    flood = [stream([again + 1] * 5, started_ns=again)]
    assert not verdicts.recovery("alice", gone, flood, RATE, step_ns=10 * MS).ok


def test_every_rule_of_level_3_is_judged_under_its_id():
    from conformance import spec

    ids = {rule.id for rule in spec.rules().values() if rule.level == 3}
    streams = paced()
    judged = {
        verdict.rule
        for verdict in (
            verdicts.pace("alice", streams, RATE),
            verdicts.windows("alice", streams, RATE),
            verdicts.sharing("alice", streams),
            verdicts.evenness("alice", streams, RATE, step_ns=MS),
            verdicts.completeness(streams),
            verdicts.identical(streams, streams),
            verdicts.isolation("alice", streams, streams, most=1.0),
            verdicts.recovery("alice", streams, streams, RATE, step_ns=MS),
        )
    }
    assert judged == ids
