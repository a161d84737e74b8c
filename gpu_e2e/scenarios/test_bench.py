"""A client that nobody here wrote: vLLM's own benchmark."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from conformance.endpoint import record_verdicts as judge
from gpu_e2e.engine.launch import Engine
from gpu_e2e.suite.live import Live, check
from gpu_e2e.suite.play import Client
from gpu_e2e.suite.program import run_program
from gpu_e2e.suite.users import limited

BENCH = limited("vllm-bench", 60)
PROMPTS = 12
TOKENS = 20
TIMEOUT_S = 170.0
_COMMAND = (sys.executable, "-m", "gpu_e2e.engine.vllm_command")


@pytest.mark.once
def test_vllm_bench_serve(live: Live, tmp_path: Path) -> None:
    """It measures the limit, though its twelve streams could have had any rate."""
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
        return await run_program(
            *command, env=Engine(live.options.device).env(), timeout_s=TIMEOUT_S
        )

    played = live.play(act, timeout_s=TIMEOUT_S + 5)
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
    live.judge(
        played,
        check("figure-bench", found["completed"] == PROMPTS, message),
        check("charged", charged == tokens, f"{charged} tokens charged, {tokens} counted by it"),
        judge.rate(played.record, BENCH, played.promise(BENCH), streams=PROMPTS, min_seconds=2.0),
    )
