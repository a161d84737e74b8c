"""What passes leaves nothing behind: no cost in a later step, no entry of a user."""

from __future__ import annotations

import pytest

from benchmarks.scale.run import passage
from benchmarks.scenes import Scene
from sched_adapter.turns import Turns

SCENE = Scene(1_024, 1_024 - 16)


def test_a_step_costs_the_same_after_many_users_as_after_few() -> None:
    few, many = passage(4_000, SCENE), passage(24_000, SCENE)
    assert many.opcodes <= 1.01 * few.opcodes
    assert many.users_left == few.users_left == 0
    assert many.limited_left == few.limited_left == SCENE.users  # those in debt for 1,000 s


def test_users_that_are_kept_for_ever_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    leave = Turns.leave

    def hoarding(self: Turns, line: object) -> bool:
        left = leave(self, line)
        if left:
            self.users[line.user.name] = line.user
        return left

    monkeypatch.setattr(Turns, "leave", hoarding)
    assert passage(4_000, Scene(64, 48)).users_left == 4_000
