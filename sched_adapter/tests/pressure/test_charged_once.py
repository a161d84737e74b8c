"""A settlement that asked some users one by one, and then all at once, charges nobody twice."""

from __future__ import annotations

from collections import Counter

from conformance.contract import Contract
from sched_adapter.tests.pressure.house import check_books, check_whole, house


def test_who_was_asked_before_all_were_is_charged_once(depth: int, backend: Contract) -> None:
    """Ample users a and c around b, which runs short in every fourth step; nobody waits.

    Where b runs short, a has been asked by then and c has not. Where b sleeps, one question is
    put for all who are awake. Either way each token that is dispatched was charged once.
    """
    streams = {"a": 2, "b": 1, "c": 3, "free": 1}
    engine = house(
        depth,
        backend,
        rates={"a": 5000, "b": 25, "c": 5000},
        max_model_len=4096,
        max_num_seqs=sum(streams.values()) + 1,
        num_blocks=2048,
        check_kv=False,
    )
    for user, count in streams.items():
        for i in range(count):
            engine.add(f"{user}{i}", user=user, prompt=2, max_tokens=900, ignore_eos=True)
    engine.run(20)
    scheduler, ledger = engine.scheduler, engine.scheduler.ledger
    ways: Counter[str] = Counter()
    for _ in range(200):
        before = Counter(ledger.charged)
        sampled = Counter(name.rstrip("0123456789") for name in engine.step().sampled)
        del sampled["free"]
        charged = Counter(ledger.charged) - before
        assert charged == sampled, f"charged {charged} for {sampled}"
        assert {"a": sampled["a"], "c": sampled["c"]} == {"a": 2, "c": 3}
        step = scheduler.settlement.step
        if step.everybody:
            ways["nobody short"] += 1
        elif step.taken is not None:
            ways["all at once"] += 1
        else:
            assert scheduler.turns.users["b"] in step.asked
            ways["a, then b who is short, then by turns"] += 1
    assert not ledger.refunded.total()
    assert len(ways) == 3, ways
    assert min(ways.values()) >= 5, ways
    check_books(engine)
    check_whole(engine)
