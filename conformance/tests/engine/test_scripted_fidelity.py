"""The harness's loop against vLLM's own EngineCore step functions, step by step."""

import queue
import random
from collections import deque
from concurrent.futures import Future

import pytest
from vllm.v1.engine.core import EngineCore

from conformance.engine import ScriptedEngine, ScriptedGrammar, pending_grammar
from conformance.engine.observe import digest


class Executor:
    """The scripted runner behind the two calls that EngineCore makes."""

    def __init__(self, engine):
        self.runner = engine.runner
        self.batches = deque()

    def execute_model(self, output, non_block=False):
        batch = self.runner.execute(output)
        if batch.request_ids:
            self.batches.append(batch)
            return done(None)
        return done(self.runner.sample(batch, None))

    def sample_tokens(self, grammar, non_block=False):
        result = self.runner.sample(self.batches.popleft(), grammar)
        return done(result) if non_block else result


def done(value):
    future = Future()
    future.set_result(value)
    return future


class CoreEngine:
    """EngineCore's own methods over a scheduler that the harness made."""

    def __init__(self, **options):
        self.harness = ScriptedEngine(**options)
        self.scheduler = self.harness.scheduler
        core = self.core = object.__new__(EngineCore)
        core.scheduler = self.scheduler
        core.vllm_config = self.harness.vllm_config
        core.model_executor = Executor(self.harness)
        core.log_stats = False
        core._weight_version = "default"
        core.aborts_queue = queue.Queue()
        core.is_mm_encoder_only = core.is_pooling_model = core.check_for_draft_tokens = False
        core.batch_queue_size = core.vllm_config.max_concurrent_batches
        core.batch_queue = (
            deque(maxlen=core.batch_queue_size) if core.batch_queue_size > 1 else None
        )
        self.digests = []
        schedule = self.scheduler.schedule
        self.scheduler.schedule = lambda *args: self.note(schedule(*args))

    def note(self, output):
        self.digests.append(digest(output))
        return output

    def abort(self, request_id):
        self.core.aborts_queue.put([request_id])

    def step(self):
        core = self.core
        step = core.step if core.batch_queue is None else core.step_with_batch_queue
        outputs, _ = step()
        if not core.aborts_queue.empty():
            core._process_aborts_queue()
        return {
            (out.request_id, token)
            for client in (outputs or {}).values()
            for out in client.outputs
            for token in out.new_token_ids
        }


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("blocks", [14, 200])
@pytest.mark.parametrize("seed", range(4))
def test_same_steps_as_the_engine_core(depth, policy, blocks, seed):
    options = {
        "depth": depth,
        "policy": policy,
        "num_blocks": blocks,
        "max_num_batched_tokens": 24,
    }
    ours = ScriptedEngine(keep_digests=True, **options)
    core = CoreEngine(**options)
    assert core.core.batch_queue_size == depth
    rng = random.Random(seed)
    tokens = 0
    for index in range(140):
        if index < 80 and rng.random() < 0.4:
            request = {
                "prompt": rng.randint(1, 30),
                "max_tokens": rng.randint(1, 25),
                "priority": rng.randint(0, 2),
                "eos_at": rng.choice([None, 0, 4]),
                "grammar": rng.choice([None, None, 3]),
            }
            if request["grammar"]:
                request["eos_at"] = None
            for engine in (ours, core.harness):
                engine.add(f"r{index}", **request)
        if rng.random() < 0.1 and ours.requests:
            victim = rng.choice(list(ours.requests))
            ours.abort(victim, in_flight=True)
            core.abort(victim)
        if index == 100:
            # All that is left now waits for this one: steps with requests and nothing to do.
            compiling = [pending_grammar(), pending_grammar()]
            for engine, grammar in zip((ours, core.harness), compiling, strict=True):
                engine.add("late", grammar=grammar)
        elif index == 130:
            for grammar in compiling:
                grammar.set_result(ScriptedGrammar(3))
        log = ours.step()
        assert core.step() == set(log.delivered.items()), index
        assert len(core.core.batch_queue or ()) == len(ours._loop.queue), index
        tokens += len(log.delivered)
    assert [s.digest for s in ours.history.steps if not s.idle] == core.digests
    assert tokens > 100
    if blocks == 14:
        assert any(s.preempted for s in ours.history.steps)
    else:
        assert not ours.history.steps[129].scheduled
        assert ours.requests["late"].finished
