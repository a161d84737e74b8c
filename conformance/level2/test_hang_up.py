"""Everybody hangs up while throttled, or waits for long: cheap to wait for, and gone at once."""

from conformance.level2.bench import MS, SECOND
from conformance.level2.verdicts import check_ended, check_whole, drain
from conformance.rules import rule


def _throttled(bench, **options):
    """Two users with four streams each and a queue behind them, all out of quota."""
    engine = bench.engine(rates={"A": "1/100", "B": "1/100"}, max_num_seqs=8, **options)
    for i in range(7):
        for user in "AB":
            engine.add(f"{user}{i}", user=user, prompt=6 + i, max_tokens=9)
    engine.run(12)
    return engine


@rule("S3-ABORT-2")
def test_S3_ABORT_2_everybody_while_throttled(bench):
    engine = _throttled(bench)
    residents, waiting = engine.scheduler.get_request_counts()
    assert residents, "the test wants residents"
    assert waiting, "the test wants a queue"
    engine.abort(*[name for name, log in engine.requests.items() if not log.finished])
    engine.step()
    running, waiting = engine.scheduler.get_request_counts()
    blocks = engine.vllm_config.cache_config.num_gpu_blocks - 1
    bench.check(
        running == waiting == 0 and engine.free_blocks == blocks,
        user="A, B",
        at="the step after 14 requests were aborted, all throttled",
        seen=f"{running} running, {waiting} waiting, {engine.free_blocks} blocks free",
        promised=f"0, 0 and {blocks}",
    )
    # The places are free: a newcomer has one at once.
    engine.add("c", user="C", prompt=3, max_tokens=2)
    step = engine.step()
    bench.check(
        "c" in step.sampled, user="C", at="the step after", seen="no token", promised="its first"
    )
    drain(bench, engine)
    check_ended(bench, engine)


@rule("S1-LEDGER-2")
def test_S1_LEDGER_2_clients_hang_up_while_throttled(bench):
    """What a client that hung up was charged for is delivered or lost, and known as such."""
    engine = bench.engine(rates={"A": 5}, observe=lambda step: bench.check_ledger(engine))
    for n in range(12):
        for i in range(3):
            engine.add(f"a{n}-{i}", user="A", prompt=2 + i, max_tokens=9)
        engine.run(1 + n % 3, 30 * MS)
        mine = [name for name, log in engine.requests.items() if not log.finished]
        if n % 2:  # in flight: its quota is back, so it is dispatched in the next step
            engine.clock.advance(SECOND)
        engine.abort(*mine, in_flight=n % 2 > 0)
        engine.step([10, 400, 900][n % 3] * MS)
    drain(bench, engine)
    tally = engine.history.tallies["A"]
    lost = tally.lost.total()
    charged = bench.charged(engine)
    bench.check(
        charged == tally.dispatched == tally.delivered + lost,
        user="A",
        at="after 36 requests, each aborted while throttled or in flight",
        seen=f"{charged} charged net of refunds",
        promised=f"{tally.delivered} delivered + {lost} lost = {tally.dispatched} dispatched",
    )
    assert lost, "the test wants tokens that nobody gets"
    bench.trial.figure(f"{charged} charged, {lost} of them lost by {', '.join(tally.lost)}")


@rule("S3-WAIT-2")
def test_S3_WAIT_2_ten_seconds_of_nothing(bench):
    """An engine that waits as long as it is told; then somebody comes, and somebody goes."""
    engine = _throttled(bench)
    wait = getattr(engine.scheduler, "output_rate_wait_s", None)
    until, steps = engine.clock() + 10 * SECOND, 0
    while engine.clock() < until and steps < 2_000:
        engine.step(0)
        steps += 1
        engine.clock.advance(round(wait() * SECOND) if wait is not None else 50 * MS)
    bench.check(
        steps <= 210,
        at="10 s in which all users are out of quota",
        seen=f"{steps} steps or more",
        promised="at most 210: one every 50 ms",
    )
    engine.add("c", user="C", prompt=3, max_tokens=40)
    step = engine.step(0)
    bench.check(
        "c" in step.sampled,
        user="C",
        at=f"step {step.index}, the first after it arrives",
        seen="no token",
        promised="its first: there is a place kept for it",
    )
    engine.abort("A0")
    step = engine.step(0)
    bench.check(
        "A0" not in engine.scheduler.requests,
        user="A",
        at=f"step {step.index}, the first after an abort",
        seen="the request is still known",
        promised="gone",
    )
    engine.abort(*[name for name, log in engine.requests.items() if not log.finished])
    engine.run(2)
    check_ended(bench, engine)
    check_whole(bench, engine)
