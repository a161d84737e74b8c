"""The operator's check against a simulated deployment, right and wrong, in simulated time."""

from __future__ import annotations

import asyncio
from fractions import Fraction

import pytest

from conformance.endpoint import __main__ as command
from conformance.endpoint.check import Target, check
from conformance.endpoint.trace import Stream

SECOND = 1_000_000_000
TARGET = Target(limits={"alice": Fraction(20), "bob": Fraction(50)}, free="carol", same_tokens=True)


class Deployment:
    """Stands in for the driver: GCRA in turns for the limited, 5 ms a token for carol."""

    stall_ns = 0
    base_url = "http://here/v1"

    def __init__(self, **faults):
        self.faults, self.now, self.asked = faults, SECOND, []
        self.tat = dict.fromkeys(TARGET.limits, Fraction(0))
        self.waiting = []

    async def one(self, ask):
        return await self.start(ask)[1]

    async def run(self, asks):
        return list(await asyncio.gather(*[self.start(ask)[1] for ask in asks]))

    def start(self, ask):
        self.asked.append(ask)
        stream = Stream(ask=ask, started_ns=self.now)
        self.waiting.append(stream)
        return stream, asyncio.create_task(self.answer(stream))

    async def answer(self, stream):
        batch, self.waiting = self.waiting, []
        self.limited([s for s in batch if s.user in TARGET.limits])
        for each in batch:
            if each.user == TARGET.free:
                every = 5_000_000 * (self.faults.get("slows", 1) if len(batch) > 2 else 1)
                self.deal([each], lambda i, every=every: self.now + (i + 1) * every)
        self.now = max([self.now, *(s.token_ns[-1] for s in batch)])
        return stream

    def limited(self, streams):
        for user, rate in TARGET.limits.items():
            if self.faults.get("forgets") == user:
                self.tat[user] = Fraction(0)
            per_second = rate * self.faults.get("times", 1)

            def grant(_, user=user, per_second=per_second):
                at = max(Fraction(self.now), self.tat[user] - SECOND // 10)
                self.tat[user] = max(self.tat[user], at) + SECOND / per_second
                return -int(-at // 1)

            self.deal([s for s in streams if s.user == user], grant)

    def deal(self, streams, instant):
        want = {id(s): s.ask.cancel_after or s.ask.max_tokens for s in streams}
        turns = [s for _ in range(max(want.values(), default=0)) for s in streams]
        if self.faults.get("no_turns"):
            turns.sort(key=lambda s: s.ask.name)
        index = 0
        for stream in turns:
            if len(stream.token_ns) < want[id(stream)]:
                stream.token_ns.append(instant(index))
                stream.token_ids.append(hash((stream.ask.prompt, len(stream.token_ns))) % 997)
                index += 1
        for stream in streams:
            stream.cancelled = stream.ask.cancel_after is not None
            stream.completion_tokens = len(stream.token_ns)
            stream.finish_reason = None if stream.cancelled else self.faults.get("end", "length")
            stream.error = self.faults.get("error")
            stream.ended_ns = stream.token_ns[-1]


def broken(**faults):
    lines = []
    found = asyncio.run(check(Deployment(**faults), TARGET, lines.append))
    assert any("J, the largest stall" in line for line in lines)
    assert len({v.rule for v in found}) == 8
    return {v.rule for v in found if not v.ok}


def test_a_right_deployment_holds_every_rule_of_level_3():
    assert broken() == set()


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        ({"times": 2}, "S2-WINDOWS-3"),
        ({"times": Fraction(9, 10)}, "S2-PACE-3"),
        ({"no_turns": True}, "S2-SHARING-3"),
        ({"end": "abort"}, "S3-WHOLE-3"),
        ({"forgets": "bob"}, "S3-RECOVERY-3"),
        ({"slows": 2}, "S4-ISOLATION-3"),
    ],
    ids=str,
)
def test_a_wrong_one_breaks_its_rule(fault, rule):
    assert rule in broken(**fault)


def test_everybody_is_asked_long_enough_and_told_to_go_on():
    deployment = Deployment()
    asyncio.run(check(deployment, TARGET, lambda _: None))
    assert all(ask.extra == {"ignore_eos": True} for ask in deployment.asked)
    first = [a for a in deployment.asked if a.user == "alice"][: TARGET.streams]
    assert sum(a.max_tokens for a in first) / 20 > TARGET.seconds


@pytest.fixture
def drive(monkeypatch):
    """`main` against a simulated deployment."""

    def run(deployment, *words):
        class Driver:
            def __init__(self, base_url, model, api_key):
                assert (base_url, model) == ("http://here/v1", "m")

            async def __aenter__(self):
                return deployment

            async def __aexit__(self, *_):
                pass

        monkeypatch.setattr(command, "Driver", Driver)
        limits = ["--limit", "alice=20", "--limit", "bob=50", "--free", "carol"]
        return command.main(["--base-url", "http://here/v1", "--model", "m", *limits, *words])

    return run


def test_the_command_line_prints_a_line_per_rule_and_says_it_by_its_status(drive, capsys):
    assert drive(Deployment()) == 0
    assert capsys.readouterr().out.count("holds  S") >= 12
    assert drive(Deployment(times=2)) == 1
    assert "BROKEN S2-WINDOWS-3: alice" in capsys.readouterr().out


def test_nobody_there_is_not_a_broken_rule(drive, capsys):
    assert drive(Deployment(error="APIConnectionError: refused")) == 2
    assert "no answer to judge from http://here/v1" in capsys.readouterr().err


@pytest.mark.parametrize("limit", ["alice", "=20", "alice=", "alice=0", "alice=-1", "alice=x"])
def test_a_limit_that_is_none_is_a_usage_error(drive, limit, capsys):
    with pytest.raises(SystemExit) as caught:
        drive(Deployment(), "--limit", limit)
    assert caught.value.code == 2
    assert "USER=TOKENS_PER_SECOND" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        drive(Deployment(), "--seconds", "5")
