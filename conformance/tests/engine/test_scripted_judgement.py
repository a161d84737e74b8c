"""What samples, judged from SchedulerOutput alone, against the tokens that came."""

import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from conformance.engine import (
    EngineFault,
    SchedulerContract,
    ScriptedEngine,
    StepLog,
    build_scheduler,
)


def plant(change):
    """A contract whose scheduler is stock's with the methods of `change` over it."""

    def make(vllm_config, limits, clock):
        base = AsyncScheduler if vllm_config.scheduler_config.async_scheduling else Scheduler
        return build_scheduler(type("Planted", (change, base), {}), vllm_config, clock)

    return SchedulerContract(change.__name__, make)


def test_a_token_is_dispatched_then_delivered_by_depth(depth):
    engine = ScriptedEngine(depth=depth, step_ns=7)
    engine.add("r", user="u", prompt=10, max_tokens=3)
    steps = engine.run(5)
    assert [list(s.sampled.values()) for s in steps] == [[10], [11], [12], [], []]
    later = depth - 1
    assert [s.index for s in steps if s.delivered] == [later, 1 + later, 2 + later]
    start = engine.clock.start_ns
    assert engine.history.dispatches("u") == [start, start + 7, start + 14]
    log = engine.requests["r"]
    assert log.token_ns == [start + 7 * (i + depth) for i in range(3)]
    assert log.dispatch_ns == engine.history.dispatches("u")


def test_only_the_last_chunk_samples(depth, finish):
    engine = ScriptedEngine(depth=depth, max_num_batched_tokens=8)
    engine.add("r", user="u", prompt=20, max_tokens=2)
    steps = engine.run(4)
    assert [s.scheduled.get("r") for s in steps] == [8, 8, 4, 1]
    assert [s.sampled for s in steps] == [{}, {}, {"r": 20}, {"r": 21}]
    finish(engine)


def test_a_resumed_request_samples_once_it_has_caught_up(depth, finish):
    engine = ScriptedEngine(depth=depth, max_num_batched_tokens=8, prefix_caching=False)
    engine.add("r", prompt=10, max_tokens=12)
    engine.run(8)
    engine.reset_prefix_cache()
    tokens = len(engine.requests["r"].tokens) + 10
    steps = engine.run(4)
    assert steps[0].resumed == ("r",)
    first = next(s for s in steps if s.sampled)
    assert first.sampled == {"r": tokens}
    assert sum(s.scheduled["r"] for s in steps[: steps.index(first) + 1]) == tokens
    assert first is not steps[0], "nothing was computed again"
    finish(engine)


def test_plain_scheduler_at_depth_2_samples_every_other_step(finish):
    engine = ScriptedEngine(depth=2, async_scheduling=False)
    engine.add("r", max_tokens=20)
    finish(engine)
    used = [s.index for s in engine.history.steps if s.sampled]
    assert used == list(range(0, 40, 2))


def test_books_balance_after_every_step(depth):
    seen = []

    def check(step: StepLog):
        for user in engine.history.users():
            assert engine.history.tallies[user].in_flight == engine.in_flight(user)
        seen.append(step.index)

    engine = ScriptedEngine(depth=depth, observe=check, num_blocks=12)
    for i in range(9):
        engine.add(f"r{i}", user=f"u{i % 3}", max_tokens=9 + i, eos_at=5 + i)
    engine.run(5)
    engine.abort("r1", "r8", in_flight=True)
    engine.drain()
    assert seen == list(range(len(engine.history.steps)))
    total = engine.history.tallies["u1"]
    assert total.dispatched == total.delivered + total.lost.total()


def test_history_can_be_short(depth):
    engine = ScriptedEngine(depth=depth, keep_steps=10, keep_instants=False)
    engine.add("r", user="u", max_tokens=60)
    engine.drain()
    assert 10 <= len(engine.history.steps) <= 20
    assert engine.history.dispatches("u") == []
    assert engine.history.tallies["u"].delivered == 60


class FreesTooEarly:
    """Gives the blocks of a running request back to the pool."""

    def schedule(self, *args):
        output = super().schedule(*args)
        if self.current_step == 6 and self.running:
            self.kv_cache_manager.free(self.running[0])
        return output


class GivesAUsedBlock:
    """Puts a newcomer's tokens where a running request has its own."""

    def schedule(self, *args):
        output = super().schedule(*args)
        if self.current_step == 3:
            used = self.kv_cache_manager.get_block_ids(self.running[0].request_id)
            output.scheduled_cached_reqs.new_block_ids[-1] = used
        return output


class SamplesAgain:
    """Lets a request fall back by one token: a position is sampled twice."""

    def update_from_output(self, output, result):
        out = super().update_from_output(output, result)
        if self.current_step == 4:
            for request in self.running:
                request.num_computed_tokens -= 1
                request._all_token_ids.pop()
                request._output_token_ids.pop()
        return out


class SkipsAChunk:
    def schedule(self, *args):
        output = super().schedule(*args)
        if self.current_step == 1:
            for request in self.running:
                request.num_computed_tokens += 2
        return output


class ForgetsToCount:
    def schedule(self, *args):
        output = super().schedule(*args)
        output.total_num_scheduled_tokens -= 1
        return output


class OverstuffsTheBatch:
    def schedule(self, *args):
        self.max_num_scheduled_tokens = self.scheduler_config.max_num_batched_tokens = 32
        return super().schedule(*args)


class SwallowsATokenAtTheEnd:
    """Hands one token less to the client than the scheduler keeps."""

    def update_from_output(self, output, result):
        clients = super().update_from_output(output, result)
        if self.current_step == 4:
            for client in clients.values():
                del client.outputs[:1]
        return clients


class InventsATokenForAChunk:
    def update_from_output(self, output, result):
        for tokens in result.sampled_token_ids:
            if not tokens:
                tokens.append(99)
        return super().update_from_output(output, result)


PLANTS = [
    (FreesTooEarly, "KV|blocks"),
    (GivesAUsedBlock, "KV"),
    (SamplesAgain, "due was one token|exist"),
    (SkipsAChunk, "KV|exist"),
    (ForgetsToCount, "not the sum"),
    (OverstuffsTheBatch, "32 tokens in a batch of 24"),
    (SwallowsATokenAtTheEnd, "due was one token"),
    (InventsATokenForAChunk, "nobody sampled|due was one token"),
]


@pytest.mark.parametrize(("fault", "words"), PLANTS, ids=lambda p: getattr(p, "__name__", ""))
def test_the_runner_refuses_what_no_worker_could_run(depth, fault, words):
    engine = ScriptedEngine(plant(fault), depth=depth, max_num_batched_tokens=24)
    for i in range(4):
        engine.add(f"r{i}", prompt=10 + i, max_tokens=12)
    with pytest.raises(EngineFault, match=words):
        engine.drain(200)


class TakesAllPlaces:
    def schedule(self, *args):
        self.max_num_running_reqs = self.max_num_active_reqs = 99
        return super().schedule(*args)


class LoadsAllAdapters:
    def schedule(self, *args):
        self.lora_config.max_loras = 99
        return super().schedule(*args)


@pytest.mark.parametrize(
    ("fault", "words"),
    [(TakesAllPlaces, "4 requests in a batch of 3"), (LoadsAllAdapters, r"\[1, 2\] in 1 slots")],
    ids=lambda p: getattr(p, "__name__", ""),
)
def test_a_worker_has_so_many_places_and_slots(depth, fault, words):
    engine = ScriptedEngine(plant(fault), depth=depth, max_num_seqs=3, lora_slots=1)
    for i in range(2 if fault is LoadsAllAdapters else 4):
        engine.add(f"r{i}", lora=1 + i if fault is LoadsAllAdapters else 0)
    with pytest.raises(EngineFault, match=words):
        engine.step()


class GarblesOnPreemption:
    def _preempt_request(self, request, *args, **kwargs):
        super()._preempt_request(request, *args, **kwargs)
        request._all_token_ids[-1] ^= 1


def test_a_garbled_history_is_seen_on_resumption(depth):
    engine = ScriptedEngine(plant(GarblesOnPreemption), depth=depth)
    engine.add("r", max_tokens=9)
    engine.run(4)
    engine.reset_prefix_cache()
    with pytest.raises(EngineFault, match="r: the scheduler's tokens are not the sampled ones"):
        engine.step()


class HoldsOneBack:
    """Never serves one request: nothing wrong in any step, but stuck."""

    def _handle_blocked_waiting_request(self, request):
        return request.request_id != "r1" and super()._handle_blocked_waiting_request(request)


def test_a_stuck_request_is_named(depth):
    engine = ScriptedEngine(plant(HoldsOneBack), depth=depth)
    engine.add("r0")
    engine.add("r1")
    with pytest.raises(EngineFault, match=r"after 50 steps unfinished: \['r1'\] of 1"):
        engine.drain(50)


class KeepsABlock:
    def _free_request_blocks(self, request):
        if request.request_id != "r1":
            super()._free_request_blocks(request)


def test_a_leak_is_named(depth):
    engine = ScriptedEngine(plant(KeepsABlock), depth=depth)
    engine.add("r0", prompt=4, max_tokens=2)
    engine.add("r1", prompt=4, max_tokens=2)
    engine.drain()
    assert engine.leaks() == ["KV blocks: 2"]
