"""Each verdict on an engine's record accepts a right engine and rejects one with one fault."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction

import pytest

from conformance.endpoint import record_verdicts as judge
from conformance.endpoint.promise import Even, Log
from conformance.endpoint.record import EngineRecord
from conformance.endpoint.record_measures import lateness_ns

MS = 1_000_000
SECOND = 1_000_000_000
START = 99_000_000_000
STEP = 5 * MS
LIMIT = Even(Fraction(20))


class Toy:
    """A toy engine that writes the adapter's events: GCRA, turns, a step every 5 ms.

    Its faults are switched on one at a time.
    """

    def __init__(self, seconds=12.0, streams=4, rate=20, **faults):
        self.faults = faults
        self.seconds, self.rate = seconds, rate * faults.get("times", 1)
        self.events = [
            {
                "e": "meta",
                "format": 1,
                "limiter": "gcra",
                "burst_ns": 100 * MS,
                "default_rate": None,
                "rates": {"alice": str(rate)},
            }
        ]
        self.names = [f"a{i}" for i in range(streams)]
        self.tokens = Counter()
        self.tat = Fraction(0)

    def dispatch(self, ns, step, user, req, charged=True):
        self.events.append(
            {"e": "dispatch", "ns": ns, "step": step, "user": user, "req": req, "charged": charged}
        )
        self.tokens[req] += 1

    def serve_alice(self, now, step):
        served = []
        fixed = self.faults.get("fixed_window")
        for req in self.order():
            if fixed:
                if self.granted(now) >= self.rate:
                    break
            elif self.tat - now > 100 * MS:
                break
            self.tat = max(self.tat, Fraction(now)) + Fraction(SECOND, self.rate)
            self.dispatch(now, step, "alice", req, charged=not self.faults.get("free"))
            served.append(req)
        for req in served:
            self.names.remove(req)
            self.names.append(req)
        return bool(served)

    def granted(self, now):
        in_second = [e for e in self.events if e["e"] == "dispatch" and e["user"] == "alice"]
        return sum((e["ns"] - START) // SECOND == (now - START) // SECOND for e in in_second)

    def order(self):
        return sorted(self.names) if self.faults.get("no_turns") else list(self.names)

    def run(self):
        step = 0
        for now in range(START, START + int(self.seconds * SECOND), STEP):
            step += 1
            if self.faults.get("pause_at") == step:
                self.events.append({"e": "wait", "ns": now, "end_ns": now + 1, "woke": "ready"})
            if self.faults.get("deaf") and step % 50 == 1 and step > 1:
                self.dispatch(now, step, "carol", "c", False)
                continue
            served = self.serve_alice(now, step)
            if not (
                (self.faults.get("alice_instead") and served)
                or (self.faults.get("all_stop") and not served)
            ):
                self.dispatch(now, step, "carol", "c", False)
        for req, count in self.tokens.items():
            user = "carol" if req == "c" else "alice"
            lost = self.faults.get("lost", 0)
            self.events.append(
                {"e": "output", "ns": now, "user": user, "req": req, "n": count - lost}
            )
            self.events.append(
                {
                    "e": "finish",
                    "ns": now,
                    "user": user,
                    "req": req,
                    "status": "FINISHED",
                    "tokens": count - lost - self.faults.get("untold", 0),
                }
            )
        return EngineRecord.of(self.events)


@pytest.fixture(scope="module")
def right():
    return Toy().run()


def test_a_right_engine_passes_everything(right):
    verdicts = [
        judge.whole(right),
        judge.bound(right, "alice", LIMIT),
        judge.rate(right, "alice", LIMIT, streams=4),
        judge.spread(right, "alice"),
        judge.evenness(right, "alice", LIMIT, late_ns=STEP),
        judge.undisturbed(right, "carol"),
        judge.ledger(right),
        judge.batches(right, cap=4),
    ]
    assert [str(v) for v in verdicts if not v.ok] == []
    assert right.promise("alice") == LIMIT
    assert right.promise("carol") is None


@pytest.mark.parametrize("times", [2, Fraction(21, 20)])
def test_a_rate_too_high_breaks_the_bound_and_the_rate(times):
    fast = Toy(times=times).run()
    assert not judge.bound(fast, "alice", LIMIT).ok
    assert not judge.rate(fast, "alice", LIMIT, streams=4).ok


def test_a_rate_too_low_breaks_the_rate_alone():
    slow = Toy(times=Fraction(19, 20)).run()
    assert judge.bound(slow, "alice", LIMIT).ok
    assert not judge.rate(slow, "alice", LIMIT, streams=4).ok


def test_a_long_step_is_taken_off_but_not_a_user_passed_by():
    def record(quiet):
        """20 tok/s from 0 s to 6 s and from 7 s on; in between nobody's step, or only carol's."""
        meta = Toy(seconds=0).events
        steps = [(i * 50 * MS, "alice") for i in range(260) if not 120 < i < 140]
        steps += [] if quiet else [(i * 50 * MS, "carol") for i in range(121, 140)]
        return EngineRecord.of(
            [
                *meta,
                *(
                    {"e": "dispatch", "ns": ns, "step": i, "user": u, "req": u, "charged": True}
                    for i, (ns, u) in enumerate(sorted(steps))
                ),
            ]
        )

    forgiven = judge.rate(record(quiet=True), "alice", LIMIT, streams=4)
    assert forgiven.ok, forgiven
    assert "0.90 s lost to long steps" in forgiven.message
    assert not judge.rate(record(quiet=False), "alice", LIMIT, streams=4).ok


def test_one_stream_in_steps_longer_than_its_spacing_is_held_to_no_lower_rate():
    slow = Toy(seconds=0)
    for i in range(200):
        slow.dispatch(i * 60 * MS, i, "alice", "a")
    record = EngineRecord.of(slow.events)
    assert judge.rate(record, "alice", LIMIT, streams=1).ok
    assert not judge.rate(record, "alice", LIMIT, streams=4).ok


def test_depth_is_how_many_tokens_of_a_request_are_in_flight():
    def record(*kinds):
        keys = {"ns": 0, "step": 0, "user": "a", "req": "r", "charged": True, "n": 1, "why": "x"}
        return EngineRecord.of([Toy().events[0], *({"e": kind, **keys} for kind in kinds)])

    assert record("dispatch", "output", "dispatch", "output").depth == 1
    assert record("dispatch", "dispatch", "output", "dispatch", "output", "lost").depth == 2


def test_a_second_of_quota_at_once_breaks_bound_and_evenness():
    bursty = Toy(fixed_window=True).run()
    verdict = judge.bound(bursty, "alice", LIMIT)
    assert not verdict.ok
    assert "promised" in verdict.message
    assert not judge.evenness(bursty, "alice", LIMIT).ok


def test_no_turns_breaks_the_spread_alone():
    unfair = Toy(no_turns=True).run()
    assert judge.bound(unfair, "alice", LIMIT).ok
    assert not judge.spread(unfair, "alice").ok


def test_a_step_that_passes_a_ready_user_by_breaks_evenness():
    deaf = Toy(deaf=True).run()
    verdict = judge.evenness(deaf, "alice", LIMIT)
    assert not verdict.ok
    assert verdict.figures["missed_steps"] > 0


def test_lateness_without_other_steps_is_judged_by_its_own_bound():
    events = [
        {"e": "meta", "limiter": "gcra", "burst_ns": 0, "default_rate": "20", "rates": {}},
        *(
            {"e": "dispatch", "ns": i * 57 * MS, "step": i, "user": "a", "req": "r", "charged": 1}
            for i in range(50)
        ),
    ]
    record = EngineRecord.of(events)
    promise = record.promise("a")
    assert judge.evenness(record, "a", promise, late_ns=7 * MS).ok
    assert not judge.evenness(record, "a", promise, late_ns=6 * MS).ok


@pytest.mark.parametrize(
    ("every", "wakes_after", "ok"),
    [
        (10, 0, True),
        (10, 50, True),
        (10, 51, False),
        (60, 51, True),
        (60, 500, True),
        (60, 501, False),
    ],
)
def test_an_engine_that_oversleeps_breaks_evenness(every, wakes_after, ok):
    """A token every 50 ms, each after a wait; some end late, and so does the next token."""
    events = Toy().events
    now = START
    for step in range(100):
        events.append(
            {"e": "dispatch", "ns": now, "step": step, "user": "alice", "req": "r", "charged": True}
        )
        woken = now + (50 + (wakes_after if step % every == 1 else 0)) * MS
        events.append({"e": "wait", "ns": now + MS, "end_ns": woken, "woke": "timeout"})
        now = woken
    verdict = judge.evenness(EngineRecord.of(events), "alice", LIMIT)
    assert verdict.ok is ok
    assert verdict.figures["overslept_ms"] == wakes_after


def test_an_unlimited_user_left_out_of_a_step_or_kept_waiting_is_disturbed():
    assert not judge.undisturbed(Toy(alice_instead=True).run(), "carol").ok
    assert not judge.undisturbed(Toy(pause_at=100).run(), "carol").ok
    assert not judge.undisturbed(Toy().run(), "nobody").ok


def test_an_engine_that_stands_still_with_a_throttled_user_slows_the_others():
    alone = Toy(seconds=1, streams=0).run()
    assert judge.unslowed(Toy().run(), "carol", alone).ok
    still = Toy(all_stop=True).run()
    assert judge.undisturbed(still, "carol").ok, "no step shows it"
    verdict = judge.unslowed(still, "carol", alone)
    assert not verdict.ok
    assert verdict.figures["ratio"] == pytest.approx(10)
    assert not judge.unslowed(still, "nobody", alone).ok


@pytest.mark.parametrize("fault", [{"lost": 1}, {"untold": 1}, {"free": True}])
def test_a_token_unaccounted_for_breaks_the_ledger(fault):
    assert not judge.ledger(Toy(seconds=1, **fault).run()).ok


@pytest.mark.parametrize(
    ("user", "in_flight", "ok"),
    [("alice", 0, True), ("alice", 1, False), ("carol", 2, True), ("carol", 3, False)],
)
def test_only_an_unlimited_users_last_positions_need_not_be_followed(user, in_flight, ok):
    keys = {"ns": 1, "step": 1, "user": user, "req": "r", "charged": user == "alice", "n": 1}
    events = [Toy().events[0], *({"e": "dispatch", **keys} for _ in range(2))]
    events += [{"e": kind, **keys} for kind in ("output", "dispatch", "output")]
    events += [{"e": "dispatch", **keys}] * (in_flight - 1)
    events += [{"e": "output", **keys}] * (1 - in_flight)
    delivered = sum(e["e"] == "output" for e in events)
    events.append({"e": "finish", "status": "FINISHED", **keys, "tokens": delivered})
    record = EngineRecord.of(events)
    assert judge.ledger(record).ok is ok


def test_lost_tokens_count_when_they_are_told():
    toy = Toy(seconds=1, lost=1)
    toy.run()
    for req in toy.tokens:
        toy.events.append(
            {"e": "lost", "ns": START, "user": "?", "req": req, "n": 1, "why": "stop"}
        )
    assert judge.ledger(EngineRecord.of(toy.events)).ok


def test_a_batch_above_the_cap_is_rejected(right):
    assert judge.batches(right).figures["most"] == 4
    assert not judge.batches(right, cap=3).ok


def test_too_short_or_absent_runs_are_not_judged_as_held():
    short = Toy(seconds=5).run()
    assert not judge.rate(short, "alice", LIMIT, streams=4).ok
    assert not judge.bound(short, "nobody", LIMIT).ok
    assert not judge.evenness(short, "nobody", LIMIT).ok
    meta_alone = EngineRecord.of(Toy().events[:1])
    assert not judge.whole(meta_alone).ok
    assert not judge.ledger(meta_alone).ok


def test_a_record_that_was_cut_is_said_to_be():
    toy = Toy(seconds=1)
    toy.run()
    toy.events.append({"e": "truncated", "ns": START})
    assert not judge.whole(EngineRecord.of(toy.events)).ok


def test_streams_that_never_overlap_cannot_be_judged_for_sharing(right):
    events = [
        right.meta,
        {"e": "dispatch", "ns": 1, "step": 1, "user": "a", "req": "r", "charged": True},
        {"e": "dispatch", "ns": 2, "step": 2, "user": "a", "req": "s", "charged": True},
    ]
    assert not judge.spread(EngineRecord.of(events), "a").ok


def test_lateness_is_the_wait_after_ready():
    toy = Toy(seconds=1)
    toy.run()
    toy.events.append({"e": "throttled", "ns": START, "user": "alice", "ready_ns": START + 1})
    record = EngineRecord.of(toy.events)
    assert lateness_ns(record, "alice") == [
        min(d.ns for d in record.of_user("alice") if d.ns > START) - START - 1
    ]


def test_a_rolling_windows_promise_is_its_own():
    meta = {"e": "meta", "limiter": "rolling_window", "burst_ns": 100 * MS, "default_rate": "10"}
    record = EngineRecord.of([{**meta, "rates": {}, "window_ns": 1_000 * MS}])
    assert record.promise("x") == Log(Fraction(10), 1_000 * MS)
    unknown = EngineRecord.of([{**meta, "rates": {}, "limiter": "mine"}])
    with pytest.raises(ValueError, match="mine"):
        unknown.promise("x")


def test_a_part_of_a_record_keeps_its_totals(right):
    part = right.within(START + SECOND, START + 2 * SECOND)
    assert 18 <= len(part.of_user("alice")) <= 23
    assert part.delivered == right.delivered
    assert judge.bound(part, "alice", LIMIT).ok


def test_a_file_is_read_through_the_adapter(tmp_path):
    toy = Toy(seconds=1)
    toy.run()
    path = tmp_path / "record.jsonl"
    path.write_text("".join(json.dumps(e) + "\n" for e in toy.events) + '{"e": "disp')
    assert judge.ledger(EngineRecord.load(path)).ok
    path.write_text("nothing of the kind\n")
    with pytest.raises(ValueError):  # noqa: PT011 - the adapter words it
        EngineRecord.load(path)
