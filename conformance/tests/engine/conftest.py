"""Shared by the harness's own tests; every engine here runs stock schedulers."""

import os

import pytest

# A test must never reach for a model hub: the harness says that it needs none.
os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(params=[1, 2], ids=["sync", "async"])
def depth(request):
    return request.param


@pytest.fixture
def finish():
    """Drain an engine and check what must hold at the end of any run."""

    def check(engine, max_steps=5_000):
        engine.drain(max_steps)
        for log in engine.requests.values():
            assert log.finished, f"{log.id} never ended"
            whole = engine.expected(log.id)
            if log.finish_reason in ("abort", "error"):
                assert log.tokens == whole[: len(log.tokens)], log.id
            else:
                assert log.tokens == whole, log.id
            assert len(log.dispatch_ns) == len(log.tokens) + log.lost.total(), log.id
        assert engine.leaks() == []
        for user, tally in engine.history.tallies.items():
            assert tally.in_flight == 0, user

    return check
