"""A backend that raises, answers nonsense or is slow, under the real scheduler.

The engine lives, the operator hears of it once, its users get what the policy says, and nobody
else notices.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from conformance.contracts import GCRA
from conformance.engine import ScriptedEngine
from sched_adapter import guard
from sched_adapter.tests.pressure.faulty import NONSENSE, TAKES, VERBS, Faulty
from sched_adapter.tests.pressure.house import (
    SECOND,
    check_books,
    check_bounds,
    check_whole,
    house,
    with_policy,
)

RATES = {"victim": 20, "calm": 50}
FAULTS = [
    *((verb, "raise", policy) for verb in VERBS for policy in ("open", "closed")),
    *((verb, "nonsense", policy) for verb in NONSENSE for policy in ("open", "closed")),
    *((verb, "slow", "open") for verb in VERBS),
]


def broken_house(depth: int, verb: str, how: str, policy: str) -> ScriptedEngine:
    """Three users, each with streams whose prompts take several steps."""
    engine = house(
        depth,
        f"{Faulty.__module__}:{Faulty.__qualname__}",
        rates=RATES,
        options={"verb": verb, "how": how, "victim": "victim"},
        contract=with_policy(policy),
        max_num_seqs=16,
        max_model_len=4096,
        num_blocks=4096,
    )
    for user, streams in {"victim": 1 if verb == "try_take" else 2, "calm": 2, "free": 1}.items():
        for i in range(streams):
            engine.add(f"{user}{i}", user=user, prompt=150, max_tokens=3000, ignore_eos=True)
    return engine


@pytest.fixture
def slow_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard's own clock, which a slow verb moves by 20 ms."""
    at = [0]

    def dawdle() -> None:
        at[0] += 20_000_000

    monkeypatch.setattr(Faulty, "dawdle", staticmethod(dawdle))
    monkeypatch.setattr(guard, "time", SimpleNamespace(monotonic_ns=lambda: at[0]))


@pytest.mark.usefixtures("slow_backend")
@pytest.mark.parametrize(("verb", "how", "policy"), FAULTS)
def test_a_fault_hurts_nobody_else_and_the_policy_is_kept(
    depth: int, verb: str, how: str, policy: str, log_lines: list[str]
) -> None:
    engine = broken_house(depth, verb, how, policy)
    engine.run(20)  # past the prompts
    start = {user: len(engine.history.dispatches(user)) for user in ("victim", "calm", "free")}
    engine.run_for(2 * SECOND)
    got = {user: len(engine.history.dispatches(user)) - before for user, before in start.items()}

    assert Faulty.made[-1].failures, "the test wants a fault"
    (line,) = log_lines
    assert verb in line
    assert "Faulty" in line
    assert "\n" not in line
    assert got["free"] == 200
    assert 99 <= got["calm"] <= 101

    undecided = how != "slow" and verb in TAKES
    if not undecided:
        # A lost refund costs the victim alone, and only during its prompts.
        assert 39 <= got["victim"] <= 41
    elif policy == "open":
        assert got["victim"] == 200 * (1 if verb == "try_take" else 2)
    else:
        assert got["victim"] == 0
    served = len(engine.history.dispatches("victim"))
    check_books(engine, failed_open=served if undecided else 0)
    check_bounds(engine, GCRA, ["calm"] if undecided else None)
    check_whole(engine)


@pytest.mark.parametrize("policy", ["open", "closed"])
@pytest.mark.parametrize("verb", TAKES)
def test_a_backend_that_recovers_is_believed_again(depth: int, policy: str, verb: str) -> None:
    engine = broken_house(depth, verb, "raise", policy)
    engine.run_for(SECOND)
    Faulty.made[-1].broken = False
    before, at = len(engine.history.dispatches("victim")), engine.clock()
    engine.run_for(3 * SECOND)
    after = engine.history.dispatches("victim")[before:]
    # Within the retry's 50 ms and a step, and from a full quota on: 3 tokens, then 20/s.
    assert after[0] - at <= guard.RETRY_NS + engine.step_ns
    assert 60 <= len(after) <= 63
    check_books(engine, failed_open=before)


def test_while_it_waits_the_engine_rests(depth: int) -> None:
    """Fail closed and nothing else to do: the engine sleeps its 50 ms, and does not spin."""
    engine = house(
        depth,
        f"{Faulty.__module__}:{Faulty.__qualname__}",
        rates=RATES,
        options={"verb": "try_take", "how": "raise", "victim": "victim"},
        contract=with_policy("closed"),
    )
    engine.add("only", user="victim", prompt=1, max_tokens=5)
    engine.run(2, 0)
    assert engine.scheduler.output_rate_wait_s() == pytest.approx(0.050)
    asked = Faulty.made[-1].failures
    engine.run_for(SECOND)
    assert Faulty.made[-1].failures - asked <= 1 + SECOND // guard.RETRY_NS


def test_fail_open_in_a_crowded_step_counts_every_token(depth: int) -> None:
    """More streams than the cap, some users of a backend gone silent, others sound."""
    engine = house(
        depth,
        f"{Faulty.__module__}:{Faulty.__qualname__}",
        default_rate=30,
        options={"verb": "try_take_many", "how": "raise", "victim": "victim"},
        max_num_seqs=12,
        max_num_active_seqs=3,
        max_num_batched_tokens=24,
    )
    failed_open = 0
    for n in range(300):
        for user in ("victim", "x", "y"):
            if n % 7 == 0:
                engine.add(f"{user}{n}", user=user, prompt=1 + n % 30, max_tokens=6)
        before = len(engine.history.dispatches("victim")), Faulty.made[-1].failures
        engine.step()
        if Faulty.made[-1].failures > before[1]:
            failed_open += len(engine.history.dispatches("victim")) - before[0]
    assert failed_open
    check_books(engine, failed_open)
    check_bounds(engine, GCRA, ["x", "y"])
