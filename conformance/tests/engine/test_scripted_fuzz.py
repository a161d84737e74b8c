"""Random load on stock schedulers: whatever happens, every token is right and nothing stays."""

import random

import pytest

from conformance.engine import STOP, ScriptedEngine
from conformance.engine.clock import ManualClock

USERS = ["a", "b", "c", None]
STEPS = 150


def options(rng, depth):
    chunked = rng.random() < 0.8
    return {
        "depth": depth,
        "policy": rng.choice(["fcfs", "priority"]),
        "num_blocks": rng.choice([16, 24, 200]),
        "block_size": rng.choice([4, 16]) if chunked else 4,
        "max_num_seqs": rng.choice([2, 5, 8]),
        "max_num_batched_tokens": rng.choice([8, 17, 64]) if chunked else 64,
        "chunked_prefill": chunked,
        "prefix_caching": rng.random() < 0.6,
        "max_model_len": 64,
        "long_prefill_token_threshold": rng.choice([0, 0, 5]) if chunked else 0,
        "lora_slots": rng.choice([0, 0, 1]),
    }


def arrive(engine, rng, index, lora):
    grammar = rng.choice([None, None, None, 4])
    prompt = rng.randint(1, 40)
    if rng.random() < 0.4:
        prompt = engine.model.prompt(prompt, "shared")
    kind = rng.random()
    return engine.add(
        f"r{index}",
        user=rng.choice(USERS),
        prompt=prompt,
        max_tokens=rng.randint(1, 20),
        priority=rng.randint(0, 2),
        n=rng.choice([1, 1, 1, 3]),
        seed=rng.choice([None, index]),
        grammar=grammar,
        eos_at=rng.randint(0, 9) if kind < 0.2 and grammar is None else None,
        stop_at=(rng.randint(0, 9), STOP) if kind > 0.8 and grammar is None else None,
        lora=rng.randint(0, 2) if lora else 0,
    )


def disturb(engine, rng):
    what = rng.random()
    alive = [log.id for log in engine.requests.values() if not log.finished]
    if what < 0.06 and alive:
        victims = rng.sample(alive, min(len(alive), rng.choice([1, 1, 4])))
        engine.abort(*victims, in_flight=rng.random() < 0.5)
    elif what < 0.08:
        engine.pause(new_only=rng.random() < 0.5)
    elif what < 0.14:
        engine.resume()
    elif what < 0.16:
        engine.reset_prefix_cache()


@pytest.mark.parametrize("seed", range(30))
def test_random_load(depth, seed, finish):
    rng = random.Random(1000 * depth + seed)
    engine = ScriptedEngine(clock=ManualClock(seed=seed), **(chosen := options(rng, depth)))
    for index in range(STEPS):
        if index < STEPS * 2 / 3 and rng.random() < 0.35:
            arrive(engine, rng, index, chosen["lora_slots"])
        disturb(engine, rng)
        engine.step(rng.choice([0, 1, 10_000_000]))
        for user, tally in engine.history.tallies.items():
            assert tally.in_flight == engine.in_flight(user), (chosen, user)
    engine.resume()
    finish(engine)
    dispatched = sum(len(log.dispatch_ns) for log in engine.requests.values())
    assert dispatched == sum(len(engine.history.dispatches(user)) for user in USERS)
    assert dispatched > 100
