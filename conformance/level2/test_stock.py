"""S4-STOCK: where no limit is reached, vLLM schedules as if nobody were limited."""

import random

import pytest

from conformance.level2.bench import MS
from conformance.rules import rule


def _first_difference(seen, stock):
    parts = (
        "tokens by request",
        "new requests",
        "known requests",
        "resumed",
        "tokens handed over",
        "preempted",
        "finished",
        "structured output",
        "pending structured output",
    )
    for name, a, b in zip(parts, seen, stock, strict=True):
        if a != b:
            return f"{name}: {a} instead of {b}"
    return "nothing"


@rule("S4-STOCK-2")
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("seed", range(4))
def test_S4_STOCK_2(bench, policy, seed):
    draw = random.Random(f"{seed}/{policy}")
    slots = draw.choice([2, 4, 8, 16])
    chunked = draw.random() < 0.75
    options = {
        "policy": policy,
        "max_num_seqs": slots,
        "max_num_active_seqs": draw.choice([None, slots, max(1, slots // 2)]),
        "num_blocks": draw.choice([12, 20, 40]) if seed else 200,
        "max_model_len": 32,
        "max_num_batched_tokens": draw.choice([slots + 8, 32, 64]) if chunked else 64,
        "chunked_prefill": chunked,
        "prefix_caching": draw.random() < 0.6,
        "long_prefill_token_threshold": draw.choice([0, 5]) if chunked else 0,
        "keep_digests": True,
    }
    ours = bench.engine(default_rate=10**9, rates={"b": 10**8}, **options)
    stock = bench.stock(**options)
    preempted = 0
    for step in range(160):
        for _ in range(draw.choice([0, 0, 0, 1, 1, 3]) if step < 120 else 0):
            length = draw.choice([1, 2, 3, 4, 5, 8, 9, 12, 20])
            request = {
                "user": draw.choice("abc"),
                "prompt": length if draw.random() < 0.5 else list(range(20, 20 + length)),
                "max_tokens": draw.choice([1, 2, 5, 10]),
                "priority": draw.choice([0, 0, 1, 2]) if policy == "priority" else 0,
                "eos_at": draw.choice([None, None, 0, 3]),
            }
            name = f"r{len(stock.requests)}"
            for engine in (ours, stock):
                engine.add(name, **request)
        live = [log.id for log in stock.requests.values() if not log.finished]
        abort = draw.choice(live) if live and draw.random() < 0.08 else None
        in_flight = draw.random() < 0.5
        reset = draw.random() < 0.01
        for engine in (ours, stock):
            if abort is not None:
                engine.abort(abort, in_flight=in_flight)
            if reset:
                engine.reset_prefix_cache()
        seen, due = ours.step(10 * MS), stock.step(10 * MS)
        preempted += len(due.preempted)
        if seen.digest != due.digest:
            if seen.digest is None or due.digest is None:
                what = "schedule() was called by one of the two only"
            else:
                what = _first_difference(seen.digest, due.digest)
            bench.broken(at=f"step {step}", seen=what, promised="stock's SchedulerOutput")
    bench.trial.figure(f"160 steps, {preempted} preemptions, as stock")
