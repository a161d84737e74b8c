"""A request's tokens do not depend on how it was served."""

import pytest

from conformance.engine import STOP, ScriptedEngine


def crowd(engine, count=12):
    for i in range(count):
        engine.add(f"r{i}", user=f"u{i % 3}", prompt=5 + 3 * i, max_tokens=4 + i, priority=i % 3)


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("caching", [True, False], ids=["cached", "uncached"])
def test_tokens_survive_preemption(depth, policy, caching, finish):
    engine = ScriptedEngine(depth=depth, policy=policy, prefix_caching=caching, num_blocks=14)
    for i in range(10):
        engine.add(f"r{i}", prompt=3 + i % 5, max_tokens=14 + i, priority=-i % 3)
    finish(engine)
    assert sum(log.preemptions for log in engine.requests.values()) > 3


@pytest.mark.parametrize("budget", [8, 9, 13, 64])
def test_tokens_do_not_depend_on_chunks(depth, budget, finish):
    engine = ScriptedEngine(depth=depth, max_num_batched_tokens=budget)
    crowd(engine)
    finish(engine)
    assert max(step.num_tokens for step in engine.history.steps) <= budget
    if budget < 30:
        chunks = [s for s in engine.history.steps if set(s.scheduled) - set(s.sampled)]
        assert chunks, "no prompt was cut"


def test_tokens_do_not_depend_on_company(depth, finish):
    together = ScriptedEngine(depth=depth)
    crowd(together)
    finish(together)
    assert max(step.batch_size for step in together.history.steps) == 8
    for i in (0, 5, 11):
        alone = ScriptedEngine(depth=depth)
        alone.add(f"r{i}", prompt=5 + 3 * i, max_tokens=4 + i)
        finish(alone)
        assert alone.requests[f"r{i}"].tokens == together.requests[f"r{i}"].tokens


def test_without_chunked_prefill_a_prompt_comes_whole(depth, finish):
    engine = ScriptedEngine(depth=depth, chunked_prefill=False, max_num_batched_tokens=48)
    assert engine.max_model_len == 48
    crowd(engine)
    finish(engine)
    for step in engine.history.steps:
        assert set(step.scheduled) == set(step.sampled)


def test_long_prefill_threshold_cuts_only_in_company(depth, finish):
    engine = ScriptedEngine(depth=depth, long_prefill_token_threshold=6)
    engine.add("long", prompt=30, max_tokens=3)
    assert engine.step().scheduled == {"long": 30}
    engine.add("again", prompt=30, max_tokens=3)
    assert engine.step().scheduled["again"] == 6
    finish(engine)


@pytest.mark.parametrize(
    ("length", "fresh"),
    [(13, 1), (12, 4), (15, 3), (3, 3)],
    ids=["one-left", "last-block", "many", "none"],
)
def test_prefix_cache_hits(depth, length, fresh, finish):
    engine = ScriptedEngine(depth=depth, block_size=4)
    shared = engine.model.prompt(16, "shared")
    engine.add("first", prompt=shared, max_tokens=2)
    finish(engine)
    # What is left to compute after the hit: 1 token iff all before it lies in full blocks.
    engine.add("second", prompt=shared[:length], max_tokens=6)
    assert engine.step().scheduled == {"second": fresh}
    finish(engine)


def test_prefix_caching_off_computes_all(depth, finish):
    engine = ScriptedEngine(depth=depth, prefix_caching=False)
    for name in ("first", "second"):
        engine.add(name, prompt=engine.model.prompt(13, "shared"), max_tokens=2)
        assert engine.step().scheduled[name] == 13
        finish(engine)


def test_cache_salt_keeps_requests_apart(depth, finish):
    engine = ScriptedEngine(depth=depth)
    shared = engine.model.prompt(13, "shared")
    engine.add("first", prompt=shared, max_tokens=2, cache_salt="a")
    finish(engine)
    engine.add("second", prompt=shared, max_tokens=2, cache_salt="b")
    assert engine.step().scheduled == {"second": 13}
    finish(engine)


@pytest.mark.parametrize("at", [0, 1, 5])
@pytest.mark.parametrize("kind", ["eos", "stop"])
def test_finish_at_a_token(depth, kind, at, finish):
    engine = ScriptedEngine(depth=depth)
    if kind == "eos":
        engine.add("r", max_tokens=9, eos_at=at)
    else:
        engine.add("r", max_tokens=9, stop_at=(at, STOP))
    finish(engine)
    log = engine.requests["r"]
    assert (log.finish_reason, len(log.tokens)) == ("stop", at + 1)
    assert log.stop_reason == (None if kind == "eos" else STOP)
    # Async has already dispatched the next token when it sees the stop.
    assert log.lost == ({} if depth == 1 else {"lookahead": 1})


@pytest.mark.parametrize("length", [1, 2, 9])
def test_finish_by_length_wastes_nothing(depth, length, finish):
    engine = ScriptedEngine(depth=depth)
    engine.add("r", max_tokens=length)
    finish(engine)
    log = engine.requests["r"]
    assert (log.finish_reason, len(log.tokens), len(log.dispatch_ns)) == ("length", length, length)


def test_finish_by_the_models_length(depth, finish):
    engine = ScriptedEngine(depth=depth, max_model_len=20)
    engine.add("r", prompt=13, max_tokens=50)
    finish(engine)
    log = engine.requests["r"]
    assert (log.finish_reason, len(log.tokens)) == ("length", 7)


def test_ignored_eos_goes_on(depth, finish):
    engine = ScriptedEngine(depth=depth)
    engine.add("r", max_tokens=9, eos_at=3, ignore_eos=True)
    finish(engine)
    assert engine.requests["r"].finish_reason == "length"


def test_children_of_one_request(depth, finish):
    engine = ScriptedEngine(depth=depth)
    ids = engine.add("r", user="u", n=4, seed=10, max_tokens=5)
    assert ids == ["0_r", "1_r", "2_r", "3_r"]
    engine.step()
    engine.abort("2_r")
    finish(engine)
    assert len({tuple(engine.requests[i].tokens) for i in ids if i != "2_r"}) == 3
    assert {engine.requests[i].user for i in ids} == {"u"}


def test_an_id_is_used_once():
    engine = ScriptedEngine()
    engine.add("r")
    with pytest.raises(ValueError, match="request id 'r' was used before"):
        engine.add("r")


def test_adapters_take_turns(depth, finish):
    engine = ScriptedEngine(depth=depth, lora_slots=1)
    for i in range(4):
        engine.add(f"r{i}", lora=1 + i % 2, max_tokens=4)
    engine.step()
    assert engine.history.steps[0].admitted == ("r0", "r2")
    finish(engine)


@pytest.mark.parametrize("cap", [None, 3, 8])
def test_active_cap_of_stock(depth, cap, finish):
    engine = ScriptedEngine(depth=depth, max_num_active_seqs=cap)
    crowd(engine)
    finish(engine)
    assert max(step.batch_size for step in engine.history.steps) == (cap or 8)


@pytest.mark.parametrize(("policy", "first"), [("fcfs", ("r0", "r1")), ("priority", ("r3", "r2"))])
def test_policy_decides_who_comes_first(depth, policy, first, finish):
    engine = ScriptedEngine(depth=depth, policy=policy, max_num_seqs=2)
    for i in range(4):
        engine.add(f"r{i}", priority=-i)
    assert engine.step().admitted == first
    finish(engine)


@pytest.mark.parametrize(("policy", "victim"), [("fcfs", "late"), ("priority", "worse")])
def test_policy_decides_who_is_preempted(depth, policy, victim, finish):
    engine = ScriptedEngine(depth=depth, policy=policy, num_blocks=8)
    engine.add("worse", prompt=7, max_tokens=12, priority=5)
    engine.step()
    engine.add("late", prompt=7, max_tokens=12, priority=0)
    finish(engine)
    assert {log.id for log in engine.requests.values() if log.preemptions} == {victim}


@pytest.mark.parametrize("user", ["alice", None, ["a", 1], 5, ""])
def test_identity_travels_as_it_is_given(user, finish):
    engine = ScriptedEngine()
    engine.add("r", user=user, extra_args={"other": 1})
    sent = engine.scheduler.requests["r"].sampling_params.extra_args
    assert sent == {"other": 1, **({} if user is None else {"output_rate_user": user})}
    finish(engine)
    assert engine.history.users() == [user if isinstance(user, str) else None]
