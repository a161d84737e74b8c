"""Clients that nobody here wrote: vLLM's own benchmark, and its offline `LLM`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from conformance.endpoint import record_verdicts as judge
from conformance.endpoint.promise import SECOND_NS
from conformance.endpoint.record import EngineRecord
from conformance.endpoint.trace import Ask
from gpu_e2e.engine import model
from gpu_e2e.engine.launch import Engine
from gpu_e2e.suite.live import Live, check
from gpu_e2e.suite.play import Client, Play
from gpu_e2e.suite.users import limited

BENCH = limited("vllm-bench", 60)
PROMPTS = 12
TOKENS = 20
TIMEOUT_S = 170.0
OFFLINE_RATE = 40
_COMMAND = (sys.executable, "-m", "gpu_e2e.engine.vllm_command")


async def run(*command: str, env: dict[str, str]) -> tuple[int, str]:
    """Exit status and output of a program; it is killed if it takes too long."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, output.decode(errors="replace")


@pytest.mark.once
def test_vllm_bench_serve(live: Live, tmp_path: Path) -> None:
    """It measures the limit, though its sixteen streams could have had any rate."""
    server = live.need_own_server("a benchmark that reads the model's folder")
    model_folder = server.command[server.command.index("serve") + 1]
    body = {"vllm_xargs": {"output_rate_user": BENCH}, "ignore_eos": True}
    command = [*_COMMAND, "bench", "serve", "--backend", "openai", "--base-url", live.root_url]
    command += ["--model", model_folder, "--served-model-name", live.options.served_as]
    command += ["--dataset-name", "random", "--random-input-len", "32"]
    command += ["--random-output-len", str(TOKENS), "--num-prompts", str(PROMPTS)]
    command += ["--extra-body", json.dumps(body), "--save-result", "--disable-tqdm"]
    command += ["--result-dir", str(tmp_path), "--result-filename", "bench.json"]

    async def act(driver: Client) -> tuple[int, str]:
        return await run(*command, env=Engine(live.options.device).env())

    played = live.play(act, timeout_s=TIMEOUT_S + 10)
    status, output = played.result
    if status:
        live.judge(played, check("bench", False, f"exit status {status}: {output[-500:]}"))
    found = json.loads((tmp_path / "bench.json").read_text())
    tokens = found["total_output_tokens"]
    message = (
        f"vllm bench serve: {tokens} tokens, {found['output_throughput']:.1f} tok/s, limit 60; "
        f"p99 between tokens {found['p99_itl_ms']:.0f} ms"
    )
    charged = sum(d.charged for d in played.record.of_user(BENCH))
    # It sends one request on trial first.
    wanted = tokens + TOKENS
    live.judge(
        played,
        check("figure-bench", found["completed"] == PROMPTS, message),
        check("charged", charged == wanted, f"{charged} tokens charged, {wanted} counted by it"),
        judge.rate(
            played.record.within(*_main_part(played)), BENCH, played.promise(BENCH), min_seconds=2.0
        ),
    )


def _main_part(played: Play) -> tuple[int, int]:
    """From when its streams came together: the trial request runs alone before."""
    requests = list(played.record.by_request(BENCH).values())
    return requests[1][0].ns, requests[-1][-1].ns


_OFFLINE = """
import json, sys
from vllm import LLM, SamplingParams

if __name__ == "__main__":
    folder, rate, record, mode = sys.argv[1:]
    llm = LLM(
        model=folder, enforce_eager=True, max_model_len=1024, async_scheduling=mode == "async",
        additional_config={"output_rate": {"default_rate": float(rate), "record": record}},
    )
    params = SamplingParams(
        temperature=0, max_tokens=30, ignore_eos=True, extra_args={"output_rate_user": "offline"}
    )
    answers = llm.generate(["one", "two", "three", "four"], params, use_tqdm=False)
    print("TOKENS", json.dumps([len(a.outputs[0].token_ids) for a in answers]))
"""


@pytest.mark.once
def test_offline_llm(live: Live, tmp_path: Path) -> None:
    """`LLM(additional_config=…)` paces `generate` like a server does."""
    if live.options.model is not None:
        live.not_run("a second engine beside the server has no room for a real model")
    live.need_own_server("an engine of another process")
    record_path = tmp_path / "record.jsonl"
    (tmp_path / "offline.py").write_text(_OFFLINE)
    arguments = (str(model.cached()), str(OFFLINE_RATE), str(record_path), str(live.key.mode))

    async def act(driver: Client) -> tuple[int, str]:
        env = Engine(live.options.device, "sync").env()
        return await run(sys.executable, str(tmp_path / "offline.py"), *arguments, env=env)

    status, output = asyncio.run(act(None))  # type: ignore[arg-type]
    assert status == 0, output[-2000:]
    record = EngineRecord.load(record_path)
    counts = json.loads(output.rpartition("TOKENS")[2])
    played = Play(record)
    for req, finish in record.finishes.items():
        ask = Ask("offline", "", finish.tokens)
        stream = _answer(ask, req, finish.tokens)
        played.streams.append(stream)
    promise = played.promise("offline")
    instants = [d.ns for d in record.of_user("offline")]
    seconds = (instants[-1] - instants[0]) / SECOND_NS
    live.judge(
        played,
        check("whole", counts == [30] * 4, f"answers of {counts} tokens in {seconds:.1f} s"),
        judge.rate(record, "offline", promise, streams=4, min_seconds=2.5),
        judge.spread(record, "offline"),
    )


def _answer(ask: Ask, req: str, tokens: int):  # type: ignore[no-untyped-def]
    from conformance.endpoint.trace import Stream

    return Stream(ask, 0, request_id=req, completion_tokens=tokens)
