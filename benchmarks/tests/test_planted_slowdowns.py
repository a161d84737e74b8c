"""Each gate against a slowdown planted for it: what the gate would have kept, then the plant."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks import scenes
from benchmarks.counted import verbs
from benchmarks.counted.kept import Kept
from benchmarks.counted.test_steps import TOLERANCE
from benchmarks.counted.verbs import BACKENDS, VERBS
from benchmarks.scenes import Scene
from limiters import Gcra, RollingWindow, TokenBucket
from sched_adapter.scheduler import OutputRateScheduler
from sched_adapter.turns import Turns


def nothing() -> None:
    pass


def dearer(verb: Callable[..., Any]) -> Callable[..., Any]:
    """The verb, and one call that does nothing."""

    def planted(*args: Any) -> Any:
        nothing()
        return verb(*args)

    return planted


def keep(tmp_path: Any, counts: dict[str, int]) -> Kept:
    """The gate as it stands after these counts were committed."""
    kept = Kept("kept", update=True, folder=tmp_path)
    kept.check_all(counts)
    kept.save()
    return Kept("kept", folder=tmp_path)


@pytest.mark.parametrize(
    ("backend", "cls"),
    [
        ("gcra 10/s", Gcra),
        ("token_bucket 10/s", TokenBucket),
        ("rolling_window 10/s", RollingWindow),
    ],
)
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_that_does_a_little_more_is_caught(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, backend: str, cls: type, verb: str
) -> None:
    def counts() -> dict[str, int]:
        return {verb: verbs.opcodes(BACKENDS[backend].make(), verb)}

    kept = keep(tmp_path, counts())
    kept.check_all(counts())
    method = verb.partition(",")[0]
    monkeypatch.setattr(cls, method, dearer(getattr(cls, method)))
    with pytest.raises(AssertionError, match=verb):
        kept.check_all(counts())


def test_a_log_that_keeps_more_is_caught(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    backend = BACKENDS["rolling_window 33/s, window 1 s"]
    kept = keep(tmp_path, {"entries": verbs.entries(backend, 10)})
    take = RollingWindow.try_take_many

    def hoarding(self: RollingWindow, user: str, count: int, now_ns: int) -> int:
        taken = take(self, user, count, now_ns)
        for n in range(taken):
            self._logs[user]._instants.append(now_ns + n)
        return taken

    monkeypatch.setattr(RollingWindow, "try_take_many", hoarding)
    with pytest.raises(AssertionError, match="entries"):
        kept.check_all({"entries": verbs.entries(backend, 10)})


def test_a_cleanup_that_looks_twice_is_caught(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    backend = BACKENDS["gcra 10/s"]
    kept = keep(tmp_path, {"cleanup": verbs.opcodes_of_a_cleanup(backend, 50)})
    cleanup = Gcra.cleanup_idle_users

    def twice(self: Gcra, now_ns: int) -> int:
        assert all(isinstance(user, str) for user in self._users())
        return cleanup(self, now_ns)

    monkeypatch.setattr(Gcra, "cleanup_idle_users", twice)
    with pytest.raises(AssertionError, match="cleanup"):
        kept.check_all({"cleanup": verbs.opcodes_of_a_cleanup(backend, 50)})


def step(scene: Scene) -> dict[str, int]:
    return {"step": scenes.opcodes(scenes.engine(scene), scene)}


@pytest.mark.parametrize("depth", [1, 2])
def test_a_scan_of_the_residents_is_caught(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, depth: int
) -> None:
    scene = Scene(64, 48, depth=depth)
    kept = keep(tmp_path, step(scene))
    kept.check_all(step(scene), TOLERANCE)
    schedule = OutputRateScheduler.schedule

    def scanning(self: Any, *args: Any, **kwargs: Any) -> Any:
        sum(1 for request in self.residents.everyone() if request.num_tokens)
        return schedule(self, *args, **kwargs)

    monkeypatch.setattr(OutputRateScheduler, "schedule", scanning)
    with pytest.raises(AssertionError, match="step"):
        kept.check_all(step(scene), TOLERANCE)


def test_a_scan_of_the_queue_is_caught(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    few, many = Scene(48, waiting=10), Scene(48, waiting=200)
    assert step(many) == step(few)
    kept = keep(tmp_path, step(many))
    schedule = OutputRateScheduler.schedule

    def scanning(self: Any, *args: Any, **kwargs: Any) -> Any:
        sum(1 for request in self.requests.values() if request.num_preemptions)
        return schedule(self, *args, **kwargs)

    monkeypatch.setattr(OutputRateScheduler, "schedule", scanning)
    with pytest.raises(AssertionError, match="step"):
        kept.check_all(step(many), TOLERANCE)


def test_asking_again_for_users_that_were_denied_is_caught(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    scene = Scene(64, users=16)
    asked = scenes.calls(scene, rate=20, steps=30)
    kept = keep(tmp_path, asked)
    kept.check_all(scenes.calls(scene, rate=20, steps=30))
    wake = Turns.wake

    def restless(self: Any, now_ns: int) -> Any:
        for user in list(self.users.values()):
            if user.ready_ns is not None:
                user.ready_ns = now_ns  # as if the alarm had gone off now
                heapq.heappush(self._alarms, (now_ns, -id(user), user))
        return wake(self, now_ns)

    monkeypatch.setattr(Turns, "wake", restless)
    with pytest.raises(AssertionError, match="try_take"):
        kept.check_all(scenes.calls(scene, rate=20, steps=30))
