"""No server at all: vLLM's `LLM` in a program of one's own."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from conformance.endpoint import record_verdicts
from conformance.endpoint.promise import SECOND_NS
from conformance.endpoint.record import EngineRecord
from conformance.endpoint.trace import Ask, Stream
from gpu_e2e.engine import model
from gpu_e2e.engine.launch import Engine
from gpu_e2e.suite import options
from gpu_e2e.suite.live import check, judge
from gpu_e2e.suite.play import Play
from gpu_e2e.suite.program import run_program
from gpu_e2e.suite.results import Scenario

RATE = 40
STREAMS = 4
TOKENS = 30
TIMEOUT_S = 300.0

_PROGRAM = """
import json, sys
from vllm import LLM, SamplingParams

if __name__ == "__main__":
    folder, rate, tokens, record = sys.argv[1:]
    limits = {"default_rate": float(rate), "record": record}
    more = {"additional_config": {"output_rate": limits}}
    llm = LLM(model=folder, enforce_eager=True, max_model_len=1024, **more)
    params = SamplingParams(
        temperature=0,
        max_tokens=int(tokens),
        ignore_eos=True,
        extra_args={"output_rate_user": "offline"},
    )
    answers = llm.generate(["one", "two", "three", "four"], params, use_tqdm=False)
    print("TOKENS", json.dumps([len(answer.outputs[0].token_ids) for answer in answers]))
"""


def test_offline_llm(alone: Scenario, pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """`LLM(additional_config=…)` paces `generate` as a server paces its streams."""
    given = options.read(pytestconfig)
    if given.base_url is not None:
        alone.why = "an engine of its own beside the server at --base-url"
        pytest.skip(alone.why)
    program, path = tmp_path / "offline.py", tmp_path / "record.jsonl"
    program.write_text(_PROGRAM)
    arguments = [given.model or str(model.cached()), str(RATE), str(TOKENS), str(path)]
    command = [sys.executable, str(program), *arguments]
    env = Engine(given.device, "sync").env()
    status, output = asyncio.run(run_program(*command, env=env, timeout_s=TIMEOUT_S))
    assert status == 0, output[-3000:]
    counts = json.loads(output.rpartition("TOKENS")[2].splitlines()[0])
    record = EngineRecord.load(path)
    played = Play(record)
    for (req, finish), count in zip(sorted(record.finishes.items()), counts, strict=True):
        ask = Ask("offline", "", finish.tokens, req)
        played.streams.append(Stream(ask, 0, request_id=req, completion_tokens=count))
    instants = [d.ns for d in record.of_user("offline")]
    seconds = (instants[-1] - instants[0]) / SECOND_NS
    promise = played.promise("offline")
    judge(
        alone,
        played,
        check("whole", counts == [TOKENS] * STREAMS, f"{counts} tokens in {seconds:.1f} s"),
        record_verdicts.rate(record, "offline", promise, streams=STREAMS, min_seconds=2.5),
        record_verdicts.spread(record, "offline"),
    )
