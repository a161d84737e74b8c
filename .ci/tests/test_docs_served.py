"""README's server, its clients and its offline program, run; and what it says of endpoints, held.

One server, one pass over everything that is sent to it, then the engine's record is read: it is
complete only once the server has stopped.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field

import documents
import httpx
import pytest
from documents import ROOT

from gpu_e2e.engine import model
from gpu_e2e.engine.launch import Engine, Server
from sched_adapter import record
from sched_adapter.identity import ANONYMOUS

SERVED = "tiny"
CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}
BODIES = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"prompt": ["hello", "you"], "max_tokens": 3},
    "/v1/responses": {"input": "hello", "max_output_tokens": 3},
    "/v1/messages": CHAT,
    "/invocations": CHAT,
    "/v1/chat/completions/batch": {**CHAT, "messages": [CHAT["messages"]] * 2},
    "/inference/v1/generate": {"token_ids": [1, 2, 3], "sampling_params": {"max_tokens": 3}},
    "/generative_scoring": {"query": "is it ", "items": ["a", "b"], "label_token_ids": [65, 66]},
}
#: Documented, but not served with this model, or without the package `cohere`.
ABSENT = {"/v1/systemone": 501, "/cohere/v2/chat": 404}


@dataclass
class Pass:
    """What came back, and what the engine wrote."""

    clients: dict[str, subprocess.CompletedProcess] = field(default_factory=dict)
    answers: dict[str, httpx.Response] = field(default_factory=dict)
    events: list[dict] = field(default_factory=list)

    def tokens(self, user: str) -> int:
        """Tokens dispatched for a user, all of them charged."""
        mine = [e for e in self.events if e["e"] == "dispatch" and e["user"] == user]
        assert all(event["charged"] for event in mine)
        return len(mine)


def endpoints() -> dict[str, str]:
    """README's table: endpoint -> the field's path, or "" where vLLM loses it."""
    found = {}
    for cells, where in documents.table_after(
        "README.md", "a rate of\nits own if you give it one."
    ):
        path = re.fullmatch(r"`(\S+)`", where)
        for endpoint in re.findall(r"`(/[^`]+)`", cells):
            found[endpoint] = path[1] if path else ""
            assert path or ANONYMOUS in where
    return found


def with_user(body, path, user):
    """The body with the user at its documented place, or in `vllm_xargs` where it will be lost."""
    *folders, name = (path or "vllm_xargs.output_rate_user").split(".")
    body = json.loads(json.dumps(body))
    place = body
    for folder in folders:
        place = place.setdefault(folder, {})
    place[name] = user
    return {"model": SERVED, **body}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    path = folder / "record.jsonl"
    _, _, _, *flags = documents.only("server").words()
    flags += ["--output-rate-record", str(path), "--max-model-len", "4096", "--enable-scale-out"]
    done = Pass()
    server = Server.start(
        model.cached(), log=folder / "server.log", flags=flags, served_name=SERVED
    )
    with server, httpx.Client(base_url=server.root_url, timeout=60) as client:
        for block in documents.checked("client"):
            text = block.text.replace("http://localhost:8000", server.root_url)
            text = text.replace("MODEL", SERVED)
            command = [sys.executable, "-c"] if block.language == "python" else ["bash", "-euc"]
            done.clients[str(block)] = subprocess.run(
                [*command, text], cwd=folder, capture_output=True, text=True
            )
        for endpoint, body in BODIES.items():
            sent = with_user(body, endpoints()[endpoint], f"at {endpoint}")
            done.answers[endpoint] = client.post(endpoint, json=sent)
        for name, body in {
            "openai user": {"user": "somebody"},
            "n": {"n": 3, "vllm_xargs": {"output_rate_user": "three at once"}},
            "bad name": {"vllm_xargs": {"output_rate_user": "line\nbreak"}},
            "number": {"vllm_xargs": {"output_rate_user": 5}},
            "beams": {"use_beam_search": True, "n": 2},
        }.items():
            done.answers[name] = client.post(
                "/v1/completions", json={"model": SERVED, "prompt": "hi", "max_tokens": 3, **body}
            )
        question = {"state": "it rains", "questions": {"wet": {"type": "choice"}}}
        for endpoint in ABSENT:
            done.answers[endpoint] = client.post(endpoint, json=question)
    done.events = record.read(path)
    return done


@pytest.mark.parametrize("block", documents.checked("client"), ids=str)
def test_the_client_gets_its_answer_at_its_users_pace(served, block):
    run = served.clients[str(block)]
    assert run.returncode == 0, run.stderr
    answer = run.stdout.strip()
    tokens = json.loads(answer)["usage"]["completion_tokens"] if answer[0] == "{" else int(answer)
    assert tokens == 30
    assert served.tokens("user-a") == 30 * len(served.clients)


@pytest.mark.parametrize("endpoint", BODIES)
def test_the_endpoint_keeps_or_loses_the_field_as_documented(served, endpoint):
    answer = served.answers[endpoint]
    assert answer.status_code == 200, answer.text
    kept = bool(endpoints()[endpoint])
    assert bool(served.tokens(f"at {endpoint}")) == kept


def test_every_documented_endpoint_was_asked(served):
    assert endpoints().keys() == BODIES.keys() | ABSENT.keys()
    for endpoint, status in ABSENT.items():
        assert served.answers[endpoint].status_code == status


def test_what_was_lost_is_anonymous_and_openais_user_plays_no_part(served):
    assert served.answers["openai user"].status_code == 200
    assert served.tokens("somebody") == 0
    scored = 2
    assert served.tokens(ANONYMOUS) == scored + 3


def test_completions_of_one_request_share_the_user(served):
    assert served.answers["n"].status_code == 200
    assert served.tokens("three at once") == 9


@pytest.mark.parametrize(
    ("case", "named"),
    [("bad name", "output_rate_user"), ("number", "output_rate_user"), ("beams", "beam")],
)
def test_what_is_refused_is_answered_with_400_that_names_it(served, case, named):
    answer = served.answers[case]
    assert answer.status_code == 400
    assert named in answer.json()["error"]["message"]


def test_the_record_holds_the_documented_events_and_keys(served):
    rows = documents.table_after("README.md", "two million at most")
    documented = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[1])) for row in rows}
    for event in served.events:
        keys = event.keys() - {"e"}
        if event["e"] == "meta":
            keys -= {"ns"}
        assert keys == documented[event["e"]], event
    seen = {event["e"] for event in served.events}
    assert {"meta", "dispatch", "output", "throttled", "wait", "finish"} <= seen


@pytest.mark.parametrize("block", documents.checked("offline"), ids=str)
def test_the_offline_program_runs(block, tmp_path):
    # Compiling takes minutes on a CPU, and the whole context more KV cache than there is.
    asked = f'model="{model.cached()}", enforce_eager=True, max_model_len=4096'
    program = tmp_path / "offline.py"
    program.write_text(block.text.replace('model="MODEL"', asked))
    assert program.read_text() != block.text
    path = tmp_path / "record.jsonl"
    environment = {**os.environ, **Engine().env(), "VLLM_OUTPUT_RATE_RECORD": str(path)}
    run = subprocess.run(
        [sys.executable, str(program)], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
    events = record.read(path)
    assert sum(e["e"] == "dispatch" and e["user"] == "user-a" for e in events) == 30
    assert events[0]["default_rate"] == "100"
