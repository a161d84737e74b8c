"""S3: out of quota means paused: kept, seen again in time, and free to go."""

import time

import pytest

from conformance.engine import ManualClock
from conformance.level2.bench import MS, SECOND
from conformance.level2.verdicts import check_ended, check_whole, drain, ms
from conformance.rules import rule


@rule("S3-PAUSE-2")
def test_S3_PAUSE_2(bench):
    """Three streams of 10 tokens/s, mostly throttled, beside a busy user; KV to spare."""
    engine = bench.engine(rates={"A": 10})
    for i in range(3):
        engine.add(f"a{i}", user="A", prompt=9, max_tokens=30)
    for i in range(3):
        engine.add(f"b{i}", user="B", max_tokens=400)
    blocks = {}
    for _ in range(300):
        step = engine.step()
        for i in range(3):
            name = f"a{i}"
            held = engine.scheduler.kv_cache_manager.get_block_ids(name)[0]
            before = blocks.get(name, [])
            bench.check(
                held[: len(before)] == before and name not in step.preempted,
                user="A",
                at=f"step {step.index}, request {name}",
                seen="preempted" if name in step.preempted else "other blocks than before",
                promised="its place and its blocks kept",
            )
            blocks[name] = list(held)
            bench.check(
                step.scheduled.get(name, 1) == 1 or step.index < 3,
                user="A",
                at=f"step {step.index}, request {name}",
                seen=f"{step.scheduled.get(name)} positions computed",
                promised="one, the next",
            )
    assert len(engine.history.dispatches("A")) > 20


@rule("S3-RESUME-2")
@pytest.mark.parametrize("rate", [7, 20, "1000/3"])
def test_S3_RESUME_2(bench, rate):
    """With room in the batch, each step serves just what the limiter grants at its instant."""
    engine = bench.engine(rates={"A": rate}, max_model_len=2048, num_blocks=4096)
    for i in range(3):
        engine.add(f"a{i}", user="A", prompt=4, max_tokens=1500)
    engine.add("b", user="B", max_tokens=1500)
    limiter = bench.oracle(engine)
    for n in range(500):
        now = engine.clock()
        ready = limiter.ready_at_ns("A", now)
        due = limiter.try_take_many("A", 3, now)
        step = engine.step((n * 7 % 23 + 1) * MS)
        seen = sum(name in step.sampled for name in ("a0", "a1", "a2"))
        bench.check(
            seen == due,
            user="A",
            at=f"step {n}, {ms(now - engine.clock.start_ns)}, quota ready "
            f"{ms(ready - engine.clock.start_ns)}",
            seen=f"{seen} tokens",
            promised=f"{due}",
        )


@rule("S3-CLIP-2")
@pytest.mark.parametrize("resident", [True, False], ids=["beside-its-stream", "alone"])
@pytest.mark.parametrize("length", [1, 2, 4, 5, 16, 17, 33])
def test_S3_CLIP_2(bench, length, resident):
    engine = bench.engine(rates={"A": "1/1000"}, max_num_batched_tokens=16)
    bench.exhaust(engine, "A")
    if not resident:
        engine.abort("endless-A")
    engine.add("a", user="A", prompt=length, max_tokens=3)
    computed = 0
    for _ in range(6):
        step = engine.step()
        computed += step.scheduled.get("a", 0)
        bench.check(
            computed < length and "a" not in step.sampled,
            user="A",
            at=f"step {step.index}, no quota",
            seen=f"{computed} positions of a prompt of {length} computed",
            promised=f"at most {length - 1}",
        )
    bench.check(
        computed == length - 1,
        user="A",
        at="6 steps without quota",
        seen=f"{computed} positions computed",
        promised=f"{length - 1}, all but the last",
    )
    if resident:
        engine.abort("endless-A")
    engine.step(1001 * SECOND)
    step = engine.step()
    bench.check(
        step.scheduled.get("a") == 1 and "a" in step.sampled,
        user="A",
        at="quota is back",
        seen=f"{step.scheduled.get('a', 0)} positions computed",
        promised="1, which samples",
    )


@rule("S3-UNCUT-2")
@pytest.mark.parametrize("resident", [True, False], ids=["beside-its-stream", "alone"])
def test_S3_UNCUT_2(bench, resident):
    engine = bench.engine(rates={"A": "1/1000"}, max_num_batched_tokens=64, chunked_prefill=False)
    bench.exhaust(engine, "A", max_tokens=50)
    if not resident:
        engine.abort("endless-A")
    engine.add("a", user="A", prompt=40, max_tokens=3)
    engine.add("b", user="B", prompt=4, max_tokens=20)
    for _ in range(5):
        step = engine.step()
        bench.check(
            "a" not in step.scheduled,
            user="A",
            at=f"step {step.index}, no quota",
            seen=f"{step.scheduled.get('a')} positions of its prompt",
            promised="none",
        )
    if resident:
        engine.abort("endless-A")
    engine.step(1001 * SECOND)
    step = engine.step()
    bench.check(
        step.scheduled.get("a") == 40,
        user="A",
        at="quota is back",
        seen=f"{step.scheduled.get('a', 0)} positions of its prompt",
        promised="all 40",
    )


@rule("S3-ABORT-2")
@pytest.mark.parametrize("state", ["waiting", "throttled", "mid-prompt", "in-flight", "preempted"])
@pytest.mark.parametrize("beside", ["nobody", "its-user", "others"])
def test_S3_ABORT_2(bench, state, beside):
    """Blocks and places are free by the end of the next step, and nobody else is hurt."""
    engine = bench.engine(rates={"A": 5}, max_num_batched_tokens=16, max_num_seqs=4)
    others = {"nobody": [], "its-user": ["A"], "others": ["B", "C"]}[beside]
    for user in others:
        engine.add(f"{user}-stays", user=user, prompt=5, max_tokens=6)
    engine.run(2)
    free = engine.free_blocks
    gone = [f"a{i}" for i in range(8 if state == "waiting" else 1)]
    for name in gone:
        engine.add(name, user="A", prompt=40 if state == "mid-prompt" else 6, max_tokens=9)
    if state == "in-flight":
        # Its quota is back, so it is dispatched in this step.
        engine.clock.advance(SECOND)
        engine.abort(*gone, in_flight=True)
        engine.step()
    elif state == "preempted":
        engine.run(2)
        engine.reset_prefix_cache()
    else:
        engine.run({"waiting": 0, "mid-prompt": 1, "throttled": 4}[state])
    engine.abort(*[name for name in gone if not engine.requests[name].finished])
    engine.run(2)
    running, waiting = engine.scheduler.get_request_counts()
    there = [log.id for log in engine.requests.values() if not log.finished]
    if not there:
        free = engine.vllm_config.cache_config.num_gpu_blocks - 1
    bench.check(
        running + waiting == len(there) and (engine.free_blocks >= free - len(there)),
        user="A",
        at=f"a step after the abort of a {state} request",
        seen=f"{running} running, {waiting} waiting, {engine.free_blocks} blocks free",
        promised=f"{len(there)} requests, {free} blocks",
    )
    drain(bench, engine, 600)
    check_whole(bench, engine)
    check_ended(bench, engine)


class _CountingClock(ManualClock):
    """A clock that knows how often it is read; one who waits by reading it is stopped."""

    __slots__ = ("reads",)

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.reads = 0

    def __call__(self):
        self.reads += 1
        if self.reads > 100_000:
            raise TimeoutError("the clock was read 100,000 times: is somebody waiting on it?")
        return super().__call__()


@rule("S3-WAIT-2")
def test_S3_WAIT_2_never_inside_schedule(bench):
    """Everybody is out of quota: schedule() takes no time that it does not compute in."""
    clock = _CountingClock()
    engine = bench.engine(rates={"A": "1/1000", "B": "1/1000"}, clock=clock)
    for user in "AB":
        engine.add(user, user=user, max_tokens=30)
    engine.run(3)
    schedule, slept = engine.scheduler.schedule, []

    def timed(*args):
        start, cpu, before = time.perf_counter_ns(), time.thread_time_ns(), clock.reads
        now = clock()
        output = schedule(*args)
        passed, read = clock() - now, clock.reads - before
        # A host may take the processor away, but not in each of 30 steps.
        slept.append(time.perf_counter_ns() - start - (time.thread_time_ns() - cpu))
        bench.check(
            passed == 0 and read < 1000,
            at="schedule() with all users out of quota",
            seen=f"the clock moved by {ms(passed)} and was read {read} times",
            promised="no waiting",
        )
        return output

    engine.scheduler.schedule = timed
    engine.run(30)
    bench.check(
        min(slept) < 400_000,
        at="schedule() with all users out of quota, best of 30",
        seen=f"{ms(min(slept))} asleep",
        promised="less than 0.4 ms",
    )


@rule("S3-WAIT-2")
def test_S3_WAIT_2_as_long_as_it_may(bench):
    """The wait that it asks for: none after a step that ran, else up to the next ready instant."""
    rates = {"A": 10, "B": 4}
    engine = bench.engine(rates=rates)
    wait = getattr(engine.scheduler, "output_rate_wait_s", None)
    if wait is None:
        bench.trial.figure("the scheduler offers no wait")
        return
    oracle = bench.oracle(engine)
    for user in rates:
        engine.add(user, user=user, prompt=2, max_tokens=40)
    waited = 0
    for n in range(400):
        now = engine.clock()
        step = engine.step(n % 7 * MS)
        for name in step.sampled:
            oracle.try_take(name, now)
        asked = wait()
        if step.scheduled or step.idle:
            due = (0.0, 0.0)
        else:
            waited += 1
            ready = min(oracle.ready_at_ns(user, now) for user in rates)
            left = max(0, ready - engine.clock())
            due = (min(1e-9, left / 1e9), min(0.050, (left + 1) / 1e9))
        bench.check(
            due[0] <= asked <= due[1] or step.index < 3,
            at=f"step {step.index}",
            seen=f"a wait of {asked} s",
            promised=f"{due[0]} to {due[1]} s",
        )
        if not engine.busy:
            break
    assert waited > 50
    engine.abort(*[name for name, log in engine.requests.items() if not log.finished])
    engine.run(2)
    bench.check(wait() == 0.0, at="no request left", seen=f"a wait of {wait()} s", promised="0.0")


@rule("S3-LOST-2")
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_S3_LOST_2_served_within_a_step(bench, policy):
    """Who has quota and work, with room for it, is served in the very step."""
    engine = bench.engine(
        default_rate=15, rates={"B": 40}, policy=policy, max_num_seqs=32, num_blocks=2048
    )
    limiter, serial = bench.oracle(engine), 0
    for n in range(250):
        if n % 9 == 0 and n < 200:
            for user in "ABC"[: n % 4]:
                serial += 1
                engine.add(f"{user}{serial}", user=user, prompt=2, max_tokens=9, priority=n % 2)
        now = engine.clock()
        step = engine.step()
        for user in "ABC":
            served = sum(engine.requests[name].user == user for name in step.sampled)
            able = sum(
                log.user == user and not log.finished and len(log.dispatch_ns) < log.max_tokens
                for log in engine.requests.values()
            )
            due = min(limiter.available(user, now), able + served)
            for _ in range(served):
                limiter.try_take(user, now)
            # One that has ended in this very step is no longer counted as able.
            bench.check(
                served >= min(due, able),
                user=user,
                at=f"step {step.index}",
                seen=f"{served} tokens",
                promised=f"{min(due, able)}: quota for {due}, work for {able}, room in the batch",
            )
    drain(bench, engine)


@rule("S3-LEAK-2")
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_S3_LEAK_2(bench, policy):
    """200 requests of 30 users, some aborted; afterwards everything is as before."""
    engine = bench.engine(default_rate=20, policy=policy, num_blocks=30, max_model_len=48)
    for n in range(200):
        engine.add(
            f"r{n}", user=f"u{n % 30}", prompt=1 + n % 17, max_tokens=1 + n % 9, priority=n % 3
        )
        if n % 5 == 0:
            engine.abort(f"r{n}", in_flight=n % 2 == 0)
        engine.step()
    drain(bench, engine)
    check_ended(bench, engine)
    limiter = getattr(engine.scheduler, "limiter", None)
    if limiter is not None:
        # The scheduler cleans up by itself as time goes on: one request shows it the time.
        engine.step(5 * SECOND)
        engine.add("last", user="u0", prompt=1, max_tokens=1)
        drain(bench, engine)
        bench.check(
            len(limiter) <= 1,
            at="5 s after the last request of 30 users",
            seen=f"{len(limiter)} users with state in the limiter",
            promised="at most the one who was just served",
        )
