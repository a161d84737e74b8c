"""S3: answers are whole and the same, however long they were paused."""

import random

import pytest

from conformance.engine import ScriptedGrammar, pending_grammar
from conformance.level2.bench import MS, SECOND
from conformance.level2.verdicts import check_ended, check_whole, drain
from conformance.rules import rule


def _same_ends(bench, engine, stock):
    for name, log in engine.requests.items():
        due = stock.requests[name]
        bench.check(
            (log.finish_reason, log.stop_reason) == (due.finish_reason, due.stop_reason),
            user=str(log.user),
            at=f"request {name}",
            seen=f"ended by {log.finish_reason} ({log.stop_reason})",
            promised=f"{due.finish_reason} ({due.stop_reason}) as in the unlimited run",
        )


@rule("S3-WHOLE-2")
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_S3_WHOLE_2(bench, policy):
    """A mixed load, and the same load without limits."""
    options = {"policy": policy, "num_blocks": 40, "max_model_len": 80, "step_ns": 20 * MS}
    engine, stock = bench.engine(rates={"A": 20, "B": 60}, **options), bench.stock(**options)
    draw = random.Random(policy)
    for n in range(40):
        request = {
            "user": draw.choice("ABC"),
            "prompt": draw.randrange(1, 40),
            "max_tokens": draw.randrange(1, 30),
            "eos_at": draw.choice([None, None, 0, 4, 12]),
            "stop_at": draw.choice([None, None, (0, 5), (7, 5)]),
            "ignore_eos": draw.random() < 0.2,
            "priority": draw.randrange(2) if policy == "priority" else 0,
        }
        for each in (engine, stock):
            each.add(f"r{n}", **request)
        engine.step()
    stock.drain()
    drain(bench, engine)
    check_whole(bench, engine)
    _same_ends(bench, engine, stock)


@rule("S3-END-2")
@pytest.mark.parametrize("at", [0, 1, 5])
@pytest.mark.parametrize("how", ["stop", "eos", "length", "model-length"])
def test_S3_END_2(bench, how, at):
    """Four streams that end alike, throttled, beside an unlimited one that ends alike."""
    request = {
        "stop": {"stop_at": (at, 9), "max_tokens": 20},
        "eos": {"eos_at": at, "max_tokens": 20},
        "length": {"max_tokens": at + 1},
        "model-length": {"max_tokens": 40},
    }[how]
    prompt = 30 - at - 1 if how == "model-length" else 6
    engine = bench.engine(rates={"A": 20}, max_model_len=30 if how == "model-length" else 64)
    names = [f"a{i}" for i in range(4)]
    for name in names:
        engine.add(name, user="A", prompt=prompt, **request)
    engine.add("b", user="B", prompt=prompt, **request)
    drain(bench, engine, 600)
    due = ("stop" if how in ("stop", "eos") else "length"), at + 1
    for name in [*names, "b"]:
        log = engine.requests[name]
        bench.check(
            (log.finish_reason, len(log.tokens)) == due,
            user=str(log.user),
            at=f"request {name}, to end by {how} at token {at}",
            seen=f"{log.finish_reason} after {len(log.tokens)} tokens",
            promised=f"{due[0]} after {due[1]}",
        )
    check_whole(bench, engine)
    check_ended(bench, engine)


@rule("S3-PREEMPTED-2")
@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_S3_PREEMPTED_2(bench, prefix_caching, policy):
    """Throttled and served streams in too few blocks: preempted in every state."""
    options = {"policy": policy, "prefix_caching": prefix_caching}
    engine = bench.engine(
        rates={"A": 20, "B": 100}, num_blocks=16, max_model_len=60, step_ns=20 * MS, **options
    )
    throttled = served = 0
    for i in range(4):
        for user in "ABC":
            engine.add(
                f"{user}{i}",
                user=user,
                prompt=5 + 3 * i,
                max_tokens=20 + i,
                priority=i % 2,
                eos_at=18 if i == 3 else None,
            )
    for _ in range(2000):
        if not engine.busy:
            break
        step = engine.step()
        for name in step.preempted:
            if engine.requests[name].user == "C":
                served += 1
            else:
                throttled += 1
    assert throttled, "the test wants preempted streams of limited users"
    drain(bench, engine, 1)
    check_whole(bench, engine)
    check_ended(bench, engine)


@rule("S3-GRAMMAR-2")
@pytest.mark.parametrize("ready", ["at-once", "later"])
def test_S3_GRAMMAR_2(bench, ready):
    engine = bench.engine(rates={"A": 20}, num_blocks=40, max_model_len=64)
    grammars, names = [], []
    compiling = []
    for i in range(3):
        grammar = ScriptedGrammar(5 + i)
        names += engine.add(f"g{i}", user="A", grammar=(future := pending_grammar()), max_tokens=30)
        engine.requests[f"g{i}"].grammar = 5 + i
        grammars.append(grammar)
        if ready == "at-once":
            future.set_result(grammar)
        else:
            compiling.append((future, grammar))
    engine.add("plain", user="A", max_tokens=12)
    engine.add("other", user="B", max_tokens=60)
    for n in range(400):
        if not engine.busy:
            break
        if n % 7 == 6 and compiling:
            future, grammar = compiling.pop()
            future.set_result(grammar)
        step = engine.step(10 * MS)
        for name, grammar in zip(names, grammars, strict=True):
            tokens = engine.requests[name].tokens
            bench.check(
                grammar.accepted == tokens,
                user="A",
                at=f"step {step.index}, request {name}",
                seen=f"the grammar has advanced by {len(grammar.accepted)}",
                promised=f"{len(tokens)}, the tokens delivered",
            )
    drain(bench, engine, 1)
    check_whole(bench, engine)


@rule("S3-GRAMMAR-2")
def test_S3_GRAMMAR_2_compiles_while_its_user_is_out_of_quota(bench):
    """It becomes ready while throttled, and one fails: only that request ends."""
    engine = bench.engine(rates={"A": 10})
    for i in range(2):
        engine.add(f"a{i}", user="A", max_tokens=10)
    engine.run(3)
    good, bad = pending_grammar(), pending_grammar()
    engine.add("good", user="A", grammar=good, max_tokens=20)
    engine.add("bad", user="A", grammar=bad, max_tokens=20)
    engine.run(2)
    good.set_result(ScriptedGrammar(4))
    engine.requests["good"].grammar = 4
    bad.set_exception(RuntimeError("no such grammar"))
    drain(bench, engine, 800)
    seen = {name: log.finish_reason for name, log in engine.requests.items()}
    due = {"a0": "length", "a1": "length", "good": "stop", "bad": "error"}
    bench.check(seen == due, user="A", at="end", seen=seen, promised=due)
    check_whole(bench, engine)
    check_ended(bench, engine)


@rule("S3-ENGINE-PAUSE-2")
@pytest.mark.parametrize("new_only", [False, True], ids=["all", "new-only"])
def test_S3_ENGINE_PAUSE_2(bench, new_only):
    """Paused with some throttled, some in flight and some waiting; one is aborted meanwhile."""
    engine = bench.engine(rates={"A": 20}, max_num_seqs=6)
    for i in range(5):
        engine.add(f"a{i}", user="A", prompt=4 + i, max_tokens=20)
        engine.add(f"b{i}", user="B", prompt=4 + i, max_tokens=20)
    engine.run(7)
    engine.pause(new_only=new_only)
    engine.run(30)
    engine.abort("a1", "b4")
    engine.run(30)
    engine.resume()
    drain(bench, engine, 2000)
    check_whole(bench, engine)
    check_ended(bench, engine)


@rule("S3-RESET-2")
def test_S3_RESET_2(bench):
    """Reset three times while streams are throttled, served and waiting."""
    engine = bench.engine(
        rates={"A": 20, "B": 200},
        num_blocks=60,
        max_model_len=64,
        observe=lambda step: bench.check_ledger(engine),
    )
    for i in range(5):
        for user in "ABC":
            engine.add(f"{user}{i}", user=user, prompt=3 + 2 * i, max_tokens=20)
    for steps in (6, 1, 20):
        engine.run(steps)
        done = engine.reset_prefix_cache()
        bench.check(
            done, at=f"reset after {len(engine.history.steps)} steps", seen="False", promised="True"
        )
    drain(bench, engine, 4000)
    check_whole(bench, engine)
    check_ended(bench, engine)


@rule("S3-WHOLE-2")
def test_S3_WHOLE_2_sessions(bench):
    """Streaming sessions of a throttled user beside its plain requests; one is aborted."""
    engine = bench.engine(rates={"A": 30})
    for i in range(3):
        engine.add(f"s{i}", user="A", prompt=6 + i, max_tokens=5, resumable=True)
        engine.add(f"r{i}", user="A", max_tokens=9)
    for turn in range(2):
        engine.run_for(SECOND)
        for i in range(3):
            if not engine.requests[f"s{i}"].finished:
                engine.feed(f"s{i}", [20 + turn] * 7, max_tokens=4)
        if turn == 0:
            engine.run(2)
            engine.abort("s1")
    engine.run_for(SECOND)
    for i in (0, 2):
        seen = [len(tokens) for _, tokens in engine.requests[f"s{i}"].turns]
        bench.check(
            seen == [5, 4, 4],
            user="A",
            at=f"session s{i}",
            seen=f"{seen} tokens by turn",
            promised="[5, 4, 4]",
        )
        engine.close(f"s{i}")
    drain(bench, engine)
    check_whole(bench, engine)
    check_ended(bench, engine)
