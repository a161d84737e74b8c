"""S1: what is charged, and when."""

import random
from collections import Counter

import pytest

from conformance.engine import ScriptedGrammar
from conformance.level2.bench import MS, SECOND
from conformance.rules import rule

NEVER, SLOW = "1/1000000", "1/1000"
"""A quota of one token that does not come back within a test, and one that takes 1000 s."""

alone_or_not = pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside-throttled"])
"""Beside a throttled user a step is another step: not everybody takes part in it."""


def _engine(bench, beside, **options):
    engine = bench.engine(rates={"A": 30, "other": NEVER}, **options)
    if beside:
        bench.exhaust(engine, "other")
    return engine


def _charged(bench, engine, beside):
    return bench.charged(engine) - beside


@rule("S1-CHUNK-2")
@alone_or_not
def test_S1_CHUNK_2_costs_nothing(bench, beside):
    """Six steps of a prompt at one instant, then all of the quota is still there."""
    engine = _engine(bench, beside, max_num_batched_tokens=16)
    engine.add("a", user="A", prompt=100)
    for step in range(6):
        seen = engine.step(0).scheduled.get("a")
        assert seen == 16, f"the test wants a chunk of 16, got {seen}"
        charged = _charged(bench, engine, beside)
        bench.check(
            charged == 0,
            user="A",
            at=f"chunk {step + 1} of a prompt of 100",
            seen=f"{charged} charged",
            promised="0",
        )
    engine.abort("a")
    bench.check_quota(engine, "A", "6 chunks of a prompt")


@rule("S1-CHUNK-2")
def test_S1_CHUNK_2_costs_nothing_without_quota(bench):
    """A prompt computed while its user is out of quota: what comes back later is whole."""
    engine = bench.engine(rates={"A": 10}, max_num_batched_tokens=16)
    bench.exhaust(engine, "A")
    engine.add("long", user="A", prompt=90)
    engine.run(8, 0)
    engine.abort("long", "endless-A")
    engine.step(3 * SECOND)
    bench.check_quota(engine, "A", "a prompt computed without quota")


@rule("S1-FIRST-2")
@alone_or_not
@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 32, 33])
def test_S1_FIRST_2(bench, beside, length):
    engine = _engine(bench, beside, max_num_batched_tokens=16, chunked_prefill=True)
    engine.add("a", user="A", prompt=length)
    while True:
        step = engine.step(0)
        charged = _charged(bench, engine, beside)
        sampled = "a" in step.sampled
        bench.check(
            charged == sampled,
            user="A",
            at=f"step {step.index}, prompt of {length} in chunks of 16",
            seen=f"{charged} charged",
            promised=f"{int(sampled)}",
        )
        if sampled:
            break
    engine.abort("a")
    bench.check_quota(engine, "A", f"the first token of a prompt of {length}")


@rule("S1-DECODE-2")
@alone_or_not
def test_S1_DECODE_2(bench, beside):
    """Two users with streams of all kinds; after each step each has paid for what it samples."""
    draw = random.Random(5)
    engine = _engine(bench, beside, default_rate=50, max_num_seqs=8)
    for user in "AB":
        engine.add(f"{user}-stays", user=user, max_tokens=480)
    for n in range(250):
        if draw.random() < 0.2:
            user = draw.choice("AB")
            engine.add(f"{user}{n}", user=user, prompt=draw.randrange(1, 90), max_tokens=6)
        before = engine.ledger()
        step = engine.step(draw.choice([1, 7, 20]) * MS)
        after = engine.ledger()
        if before is None:
            continue
        due = Counter(engine.requests[name].user for name in step.sampled)
        for user in "AB":
            paid = _net(after, user) - _net(before, user)
            bench.check(
                paid == due[user],
                user=user,
                at=f"step {step.index}",
                seen=f"{paid} charged",
                promised=f"{due[user]}, the positions that sample",
            )
    for user in "AB":
        mine = [n for n, log in engine.requests.items() if log.user == user and not log.finished]
        engine.abort(*mine)
    engine.step(0)
    for user in "AB":
        bench.check_quota(engine, user, "all its streams")


def _net(books, user):
    account = books.accounts.get(user)
    return account.charged - account.refunded if account else 0


@rule("S1-PREFIX-2")
@alone_or_not
@pytest.mark.parametrize("left", ["many", "one", "none"])
@pytest.mark.parametrize("quota", [True, False], ids=["quota", "no-quota"])
def test_S1_PREFIX_2(bench, beside, left, quota):
    engine = bench.engine(rates={"A": 10 if quota else SLOW, "other": NEVER}, block_size=4)
    if beside:
        bench.exhaust(engine, "other")
    known = engine.model.prompt(16, "shared")
    engine.add("first", user="free", prompt=known, max_tokens=1)
    engine.run(3, 0)
    more = {"many": engine.model.prompt(9, "more"), "one": [40], "none": []}[left]
    paid_before = beside
    if not quota:
        bench.exhaust(engine, "A")
        paid_before += engine.history.tallies["A"].dispatched
    engine.add("a", user="A", prompt=known + more)
    paid = 0
    for n in range(6):
        comes_back = n == 2 and not quota
        step = engine.step(1100 * SECOND if comes_back else 0)
        if comes_back:
            engine.abort("endless-A")
        paid += sum(engine.requests[name].user == "A" for name in step.sampled)
        bench.check(
            quota or n > 2 or "a" not in step.sampled,
            user="A",
            at=f"step {step.index}, prefix hit that leaves {left}",
            seen="a token sampled",
            promised="none without quota",
        )
        charged = bench.charged(engine) - paid_before
        bench.check(
            charged == paid,
            user="A",
            at=f"step {step.index}, prefix hit that leaves {left}",
            seen=f"{charged} charged",
            promised=f"{paid}",
        )
        if "a" in step.sampled:
            break
    else:
        bench.broken(user="A", at="6 steps", seen="no first token", promised="one with quota")
    computed = sum(s.scheduled.get("a", 0) for s in engine.history.steps)
    assert computed <= {"many": 9, "one": 1, "none": 4}[left], "the test wants a prefix hit"
    engine.abort("a")
    bench.check_quota(engine, "A", f"a prefix hit that leaves {left}")


@rule("S1-RECOMPUTE-2")
@alone_or_not
def test_S1_RECOMPUTE_2(bench, beside):
    """Preempted with its KV forgotten: prompt and output are computed again in chunks of 8."""
    engine = _engine(bench, beside, max_num_batched_tokens=8, prefix_caching=False)
    engine.add("a", user="A", prompt=10, max_tokens=40)
    while len(engine.requests["a"].tokens) < 6:
        engine.step(40 * MS)
    engine.reset_prefix_cache()
    paid = bench.charged(engine)
    for _ in range(8):
        step = engine.step(0)
        now = bench.charged(engine)
        sampled = len(step.sampled)
        bench.check(
            now - paid == sampled,
            user="A",
            at=f"step {step.index}, {step.scheduled.get('a', 0)} positions again",
            seen=f"{now - paid} charged",
            promised=f"{sampled}",
        )
        paid = now
        if sampled:
            break
    else:
        bench.broken(user="A", at="8 steps", seen="no further token", promised="one")
    assert engine.requests["a"].preemptions == 1
    again = sum(s.scheduled.get("a", 0) for s in engine.history.steps[-8:])
    assert again > 8, "the test wants more than one chunk"
    engine.abort("a")
    bench.check_quota(engine, "A", "a recomputed prompt and its next token")


@rule("S1-LATE-2")
@pytest.mark.parametrize("drop", [False, True], ids=["displaced", "reset"])
def test_S1_LATE_2(bench, drop):
    """Preempted with a token in flight: paid once a dispatch, delivered once a position."""
    engine = bench.engine(
        rates={"A": 100},
        policy="priority",
        num_blocks=8,
        max_model_len=32,
        prefix_caching=False,
        observe=lambda step: bench.check_ledger(engine),
    )
    engine.add("a", user="A", prompt=6, max_tokens=12, priority=1)
    engine.run(3)
    # Of better priority, and in need of more blocks with every step: the other gives way.
    engine.add("b", user="B", prompt=15, max_tokens=16, priority=0)
    if drop:
        engine.step()
        engine.reset_prefix_cache()
    for _ in range(200):
        if not engine.busy:
            break
        engine.step()
    log = engine.requests["a"]
    assert log.preemptions, "the test wants a preemption"
    bench.check(
        log.tokens == engine.expected("a"),
        user="A",
        at="request a",
        seen=f"{len(log.tokens)} tokens ({log.finish_reason})",
        promised="each of 12 positions once",
    )
    delivered, lost = len(log.tokens), log.lost.total()
    paid = bench.charged(engine)
    bench.check(
        paid == len(log.dispatch_ns) == delivered + lost,
        user="A",
        at="request a",
        seen=f"{paid} charged, {delivered} delivered, {lost} lost",
        promised=f"{len(log.dispatch_ns)} charged, as many as dispatched",
    )


@rule("S1-UNLIMITED-2")
def test_S1_UNLIMITED_2(bench):
    engine = bench.engine(rates={"A": 20})
    for i in range(3):
        engine.add(f"b{i}", user="B", max_tokens=60)
        engine.add(f"anonymous{i}", max_tokens=60)
    engine.add("a", user="A", max_tokens=20)
    engine.run(30)
    books = engine.ledger()
    if books is not None:
        for user, account in books.accounts.items():
            bench.check(
                user == "A" or account.charged == 0,
                user=user,
                at="30 steps",
                seen=f"{account.charged} charged",
                promised="0 without a rate",
            )
    limiter = getattr(engine.scheduler, "limiter", None)
    if limiter is not None:
        bench.check(
            len(limiter) <= 1,
            user="B",
            at="30 steps",
            seen=f"{len(limiter)} users with state in the limiter",
            promised="1, the only one with a rate",
        )
    longest = max(engine.requests[f"b{i}"].dispatch_ns[-1] for i in range(3))
    bench.check(
        all(len(engine.requests[f"b{i}"].dispatch_ns) >= 29 for i in range(3)),
        user="B",
        at=f"{longest - engine.clock.start_ns} ns",
        seen=[len(engine.requests[f"b{i}"].dispatch_ns) for i in range(3)],
        promised="a token in each of 30 steps",
    )


@rule("S1-SESSION-2")
def test_S1_SESSION_2(bench):
    """Three turns, the later prompts in chunks: input is free, each token costs one."""
    engine = bench.engine(
        rates={"A": 40},
        max_num_batched_tokens=8,
        observe=lambda step: bench.check_ledger(engine),
    )
    engine.add("s", user="A", prompt=20, max_tokens=4, resumable=True)
    log = engine.requests["s"]
    for turn, prompt in enumerate(([20] * 19, [30])):
        for _ in range(60):
            if len(log.turns) > turn:
                break
            engine.step()
        engine.feed("s", prompt, max_tokens=5 - turn)
    for _ in range(60):
        if len(log.turns) == 3:
            break
        engine.step()
    seen = [len(tokens) for _, tokens in log.turns]
    bench.check(
        seen == [4, 5, 4],
        user="A",
        at="session of three turns",
        seen=f"{seen} tokens by turn",
        promised="[4, 5, 4]",
    )
    engine.step()
    tally = engine.history.tallies["A"]
    bench.check(
        bench.charged(engine) == tally.dispatched,
        user="A",
        at="session of three turns",
        seen=f"{bench.charged(engine)} charged",
        promised=f"{tally.dispatched}, its sampled tokens",
    )
    engine.close("s")
    engine.step(0)
    bench.check_quota(engine, "A", "three turns of a session")


class _Refuses(ScriptedGrammar):
    """Takes no token: the engine ends its request with an error."""

    def accept_tokens(self, request_id, tokens):
        return False


@rule("S1-KEPT-2")
@alone_or_not
@pytest.mark.parametrize("why", ["abort", "stop", "error"])
def test_S1_KEPT_2(bench, beside, why):
    """A token was dispatched and nobody gets it: it stays paid."""
    engine = _engine(bench, beside)
    options = {"abort": {}, "stop": {"stop_at": (1, 5)}, "error": {"grammar": _Refuses(5)}}[why]
    engine.add("a", user="A", max_tokens=9, **options)
    if why == "abort":
        engine.abort("a", in_flight=True)
    engine.run(6, 0)
    assert engine.requests["a"].finish_reason == why
    tally = engine.history.tallies["A"]
    charged = _charged(bench, engine, beside)
    bench.check(
        charged == tally.dispatched,
        user="A",
        at=f"after {why}",
        seen=f"{charged} charged",
        promised=f"{tally.dispatched}, all that was dispatched",
    )
    bench.check_quota(engine, "A", why)


@rule("S1-IDENTITY-2")
def test_S1_IDENTITY_2(bench):
    """What a client's object says after the request came in changes nothing."""
    engine = bench.engine(rates={"A": 10, "B": 10})
    engine.add("a", user="A", max_tokens=30)
    engine.add("b", user="B", max_tokens=1)
    engine.step()
    request = engine.scheduler.requests["a"]
    request.sampling_params.extra_args["output_rate_user"] = "B"
    engine.run_for(SECOND)
    seen = len(engine.history.dispatches("A"))
    bench.check(seen >= 9, user="A", at="1 s", seen=f"{seen} tokens", promised="9 at 10 tokens/s")
    engine.abort("a")
    engine.step(0)
    for user in "AB":
        bench.check_quota(engine, user, "a change of a request's identity after it came in")
