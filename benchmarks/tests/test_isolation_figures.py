"""What the instants of two lives are made into, and the lives; the engines run on demand."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from benchmarks.isolation.figures import Result, result
from benchmarks.isolation.lane import Lane, OwnClock, Question, side_by_side

MS = 1_000_000
TOKENS = 5
MOST_STEPS = 10_000
"""More than any life here takes: one that does not end fails."""


class Steps:
    """An engine whose steps take so long, on a wall clock that two of them share."""

    def __init__(self, wall: Wall, step_ms: Callable[[], int], flood_every_ms: int = 0) -> None:
        self.wall, self.step_ms = wall, step_ms
        self.clock = OwnClock(wall)
        self.flood_every_ns = flood_every_ms * MS
        self.flood_at_ns = self.clock()
        self.left: dict[str, int] = {}
        self.others = 0
        self.steps = 0

    @property
    def busy(self) -> bool:
        return bool(self.left or self.flood_every_ns)

    def add(self, request: str) -> None:
        self.left[request] = TOKENS

    def step(self) -> Collection[str]:
        self.steps += 1
        assert self.steps < MOST_STEPS
        served = list(self.left)
        if self.flood_every_ns and self.clock() >= self.flood_at_ns:
            self.flood_at_ns += self.flood_every_ns
            self.others += 1
            served.append("flood")
        if served:
            self.wall.now_ns += self.step_ms() * MS
        self.left = {request: left - 1 for request, left in self.left.items() if left > 1}
        return served

    def wait_s(self) -> float:
        return max(0.0, (self.flood_at_ns - self.clock()) / 1e9)


class Wall:
    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def lives(alone: Steps, beside: Steps, pauses_ms: Collection[int]) -> Result:
    lanes = [Lane(each, each.clock) for each in (alone, beside)]
    asked = [side_by_side(lanes, f"{n}", p * MS, TOKENS) for n, p in enumerate(pauses_ms)]
    first, second = zip(*asked, strict=True)
    return result(first, second, lanes[1].others_ns, TOKENS)


def questions(first_ms: float, gap_ms: float) -> list[Question]:
    instants = [int((first_ms + n * gap_ms) * MS) for n in range(TOKENS)]
    return [
        Question(
            f"{n}", n * 10**9, tokens_ns=[n * 10**9 + i for i in instants], steps=[3, 4, 5, 6, 7]
        )
        for n in range(9)
    ]


def test_a_shift_is_seen_as_large_as_it_is() -> None:
    found = result(questions(6.0, 4.0), questions(6.6, 4.4), [], TOKENS)
    assert (found.first.ratio, found.gap.ratio) == (pytest.approx(1.1), pytest.approx(1.1))
    assert (found.first.alone_ms, found.first.beside_ms) == (6.0, 6.6)
    assert (found.gap.alone_ms, found.gap.beside_p99_ms) == (4.0, 4.4)
    assert found.steps_per_token == 1
    found = result(questions(6.0, 4.0), questions(6.6, 4.0), [], TOKENS)
    assert (found.first.ratio, found.gap.ratio) == (pytest.approx(1.1), pytest.approx(1.0))
    assert Result.from_json(found.to_json()) == found


def test_a_machine_that_slows_down_does_so_for_both() -> None:
    # For one question it does so between the two lives: the medians are 6 and 63.
    alone = questions(6.0, 4.0)[:5] + questions(60.0, 40.0)[5:]
    beside = questions(6.3, 4.2)[:4] + questions(63.0, 42.0)[4:]
    found = result(alone, beside, [], TOKENS)
    assert (found.first.alone_ms, found.first.beside_ms) == (6, 63)
    assert (found.first.ratio, found.gap.ratio) == (pytest.approx(1.05), pytest.approx(1.05))


def test_what_is_slow_for_one_question_in_three_is_in_the_tail() -> None:
    beside = questions(6.0, 4.0)
    for question in beside[::3]:
        question.tokens_ns = [at + 6 * MS for at in question.tokens_ns]
    found = result(questions(6.0, 4.0), beside, [], TOKENS)
    assert (found.first.ratio, found.first.beside_p99_ms) == (1.0, 12.0)


def test_lives_that_cannot_be_compared_are_refused() -> None:
    torn = questions(6.0, 4.0)
    torn[3].tokens_ns.pop()
    with pytest.raises(ValueError, match="4 tokens in an answer of 5"):
        result(questions(6.0, 4.0), torn, [], TOKENS)
    with pytest.raises(ValueError, match="same questions"):
        result(questions(6.0, 4.0), questions(6.0, 4.0)[1:], [], TOKENS)


def test_a_question_that_arrives_in_a_step_waits_for_its_end() -> None:
    engine = Steps(Wall(), lambda: 10, flood_every_ms=100)
    lane, start_ns = Lane(engine, engine.clock), engine.clock()
    question = lane.ask("q", start_ns + 3 * MS)
    assert question.held
    lane.step()
    waited_ms = (question.tokens_ns[0] - question.arrived_ns) / MS
    assert waited_ms == 17  # 7 of the flood's step and 10 of its own
    lane.until(start_ns + 95 * MS)
    assert lane.others_ns == [start_ns + 10 * MS]
    later = lane.ask("r", start_ns + 97 * MS)
    assert not later.held
    lane.step()
    assert later.tokens_ns[0] - later.arrived_ns == 10 * MS  # the flood had to wait longer


def test_a_flood_has_its_rate_in_its_engine_s_own_time() -> None:
    wall = Wall()
    alone, beside = Steps(wall, lambda: 10), Steps(wall, lambda: 10, flood_every_ms=50)
    found = lives(alone, beside, [n % 7 * 9 for n in range(60)])
    assert found.others_per_s == pytest.approx(20, rel=0.02)
    assert (found.gap.alone_ms, found.gap.beside_ms) == (10, 10)  # not the other's step as well
    assert 0 < found.held < 0.5


def test_engines_take_turns_step_by_step() -> None:
    wall, order = Wall(), ""

    def step(name: str) -> Callable[[], int]:
        def took_ms() -> int:
            nonlocal order
            order += name
            return 10

        return took_ms

    lives(Steps(wall, step("a")), Steps(wall, step("b")), [5, 5])
    assert order == 2 * "abbaabbaab"
