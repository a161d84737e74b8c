"""S1: the books of a whole run."""

import random

import pytest

from conformance.level2.bench import MS
from conformance.level2.verdicts import drain
from conformance.rules import rule


@rule("S1-LEDGER-2")
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("seed", range(3))
def test_S1_LEDGER_2(bench, policy, seed):
    """A random run with aborts, preemptions, resets and too few blocks, looked at step by step."""
    draw = random.Random(seed)
    engine = bench.engine(
        rates={"a": 10, "b": 60},
        policy=policy,
        max_num_seqs=8,
        max_num_active_seqs=draw.choice([None, 3]),
        num_blocks=14,
        max_model_len=48,
        max_num_batched_tokens=24,
        prefix_caching=seed % 2 == 0,
        observe=lambda step: bench.check_ledger(engine),
    )
    for step in range(200):
        if draw.random() < 0.35:
            user = draw.choice("abc")
            engine.add(
                f"{user}{step}",
                user=user,
                prompt=draw.choice([1, 3, 4, 5, 9, 20]),
                max_tokens=draw.choice([1, 2, 8, 20]),
                priority=draw.randrange(3) if policy == "priority" else 0,
                eos_at=draw.choice([None, None, 0, 3]),
            )
        live = [log.id for log in engine.requests.values() if not log.finished]
        if live and draw.random() < 0.1:
            engine.abort(draw.choice(live), in_flight=draw.random() < 0.5)
        if draw.random() < 0.01:
            engine.reset_prefix_cache()
        engine.step(draw.choice([1, 5, 20]) * MS)
    engine.step_ns = 30 * MS
    drain(bench, engine)
    preemptions = sum(log.preemptions for log in engine.requests.values())
    assert preemptions, "the run was to have preemptions"
    books = engine.ledger()
    if books is None:
        bench.trial.figure("no ledger: judged by SchedulerOutput")
    else:
        bench.trial.figure(f"{books.net} tokens, {preemptions} preemptions")
