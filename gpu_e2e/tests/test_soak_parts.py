"""The soak's pure parts: who comes, and what is a leak."""

from __future__ import annotations

import os
import re
from collections import Counter
from fractions import Fraction

import pytest

from conformance.endpoint.record import EngineRecord
from conformance.endpoint.trace import Stream
from gpu_e2e.engine.vocabulary import NUMBERS
from gpu_e2e.soak import memory, visits
from gpu_e2e.suite.live import judge
from gpu_e2e.suite.play import Play
from gpu_e2e.suite.results import Scenario

LIMITS = {name: float(Fraction(rate)) for name, rate in visits.names().items()}
SESSIONS = [visits.session(1, number, LIMITS) for number in range(2000)]
ALL = [visit for session in SESSIONS for visit in session]


def test_everything_follows_from_the_seed():
    assert SESSIONS[:50] == [visits.session(1, number, LIMITS) for number in range(50)]
    assert SESSIONS[:50] != [visits.session(2, number, LIMITS) for number in range(50)]


def test_hundreds_of_users_and_every_kind_of_visit():
    kinds = Counter(visit.kind for visit in ALL)
    assert kinds.keys() == visits.WEIGHTS.keys()
    assert min(kinds.values()) > 50
    users = {visit.ask.user for visit in ALL}
    assert None in users
    assert len(users & LIMITS.keys()) > 300
    assert len({user for user in users if user and user.startswith("guest-")}) > 300
    assert all(len({visit.ask.user for visit in session}) == 1 for session in SESSIONS)
    labels = [visit.ask.name for visit in ALL]
    assert len(set(labels)) == len(labels)


def test_nobody_asks_for_more_than_its_rate_gives_in_time():
    for session in SESSIONS:
        rate = LIMITS.get(session[0].ask.user, visits.DEFAULT_RATE)
        wanted = sum(visit.tokens or 0 for visit in session)
        assert wanted <= max(visits.PATIENCE_S * rate, 3 * 3)


def test_a_patient_visit_has_a_known_answer_and_fits_the_model():
    for visit in ALL:
        assert (visit.tokens is None) == (visit.kind in visits.LEAVING or visit.kind == "bad")
        assert len(visit.ask.prompt) + visit.ask.max_tokens < visits.MODEL_LEN
        if visit.kind in ("ends", "several"):
            last = int(re.search(r" (\d+)a$", visit.ask.prompt)[1])
            assert visit.tokens == (last + 1) * visit.ask.extra.get("n", 1)
        if visit.kind == "stopped":
            last = int(re.search(r" (\d+)a$", visit.ask.prompt)[1])
            said = [f" {number}a" for number in range(last - 1, -1, -1)]
            (stop,) = visit.ask.extra["stop"]
            assert next(n for n, text in enumerate(said, 1) if stop in text) == visit.tokens
            assert last < NUMBERS


MIB = memory.MIB


@pytest.mark.parametrize(
    ("grows", "ok"),
    [
        (lambda t: 100 * MIB, True),
        (lambda t: 100 * MIB + int(t * MIB), False),  # a leak
        (lambda t: (400 if t < 30 else 100) * MIB, True),  # what the start took
        (lambda t: (100 if t < 250 else 109) * MIB, False),
        (lambda t: (100 if t < 250 else 107) * MIB, True),
    ],
)
def test_memory(grows, ok):
    samples = [(float(t), {"EngineCore": grows(t)}) for t in range(0, 300, 2)]
    assert memory.flat(samples, "EngineCore", 300).ok is ok


def test_memory_that_nobody_saw_is_not_flat():
    samples = [(float(t), {"EngineCore": 1}) for t in range(250)]
    assert not memory.flat(samples, "EngineCore", 300).ok
    assert not memory.flat(samples, "Worker", 250).ok


def test_the_memory_of_this_very_process():
    found = memory.resident(os.getpgrp())
    assert sum(found.values()) > 10 * MIB
    assert memory._name("VLLM::EngineCore", False) == "EngineCore"
    assert memory._name("VLLM::Worker_TP0", False) == "Worker_TP"
    assert memory._name("python -m x serve", True) == "API server"


def test_of_a_crowd_only_those_who_broke_their_bound_are_named():
    rates = {f"u{n}": "10" for n in range(30)}
    events = [{"e": "meta", "limiter": "gcra", "burst_ns": 100_000_000, "rates": rates}]
    events[0]["default_rate"] = None
    for n, user in enumerate(rates):
        ns = range(4) if user == "u7" else [n]
        who = {"user": user, "req": f"r{n}"}
        events += [{"e": "dispatch", "ns": t, "step": t, "charged": True, **who} for t in ns]
    scenario = Scenario("soak", "s")
    with pytest.raises(pytest.fail.Exception, match="u7"):
        judge(scenario, Play(EngineRecord.of(events)), books=False)
    bounds = [v for v in scenario.verdicts if v.rule == "bound"]
    assert [v.ok for v in bounds] == [False, True]
    assert bounds[1].figures["users"] == 29


def test_requests_of_a_stream_are_found_among_many():
    who = {"user": "u", "e": "dispatch", "ns": 1, "step": 1, "charged": True}
    meta = {"e": "meta", "limiter": "gcra", "burst_ns": 1, "default_rate": None, "rates": {}}
    events = [meta, *({**who, "req": f"cmpl-{n}-x-{m}"} for n in range(3) for m in range(2))]
    played = Play(EngineRecord.of(events))
    for n in (2, 0, 2):
        stream = Stream(SESSIONS[0][0].ask, 0, request_id=f"cmpl-{n}-x")
        assert played.requests(stream) == [f"cmpl-{n}-x-0", f"cmpl-{n}-x-1"]
    assert played.requests(Stream(SESSIONS[0][0].ask, 0)) == []
