"""Totals, metrics, the tail of a record, and the report: right, and wrong on purpose."""

from __future__ import annotations

import json
import os
import socket

import pytest

from conformance.endpoint.record import EngineRecord
from conformance.endpoint.trace import Ask, Stream
from conformance.endpoint.verdict import Verdict
from conformance.rules import Pace
from gpu_e2e.suite import connections, metrics, report, text
from gpu_e2e.suite.page import page
from gpu_e2e.suite.play import Play
from gpu_e2e.suite.results import Results, Scenario
from gpu_e2e.suite.tail import RecordTail
from gpu_e2e.suite.totals import totals

META = {"e": "meta", "limiter": "gcra", "burst_ns": 100_000_000, "default_rate": None}
META["rates"] = {"u": "20"}


def a_play(*, charged=4, delivered=3, lost=1, usage=3, cut=0, status="S", reason="length"):
    """One whole answer, and one that its client cut off after `cut` tokens."""
    events = [META]
    who = {"user": "u", "req": "cmpl-1-0-ab"}
    events += [
        {"e": "dispatch", "ns": n, "step": n, "charged": n < charged, **who} for n in range(4)
    ]
    events += [{"e": "output", "ns": 9, "n": delivered, **who}]
    events += [{"e": "lost", "ns": 9, "n": lost, "why": "lookahead", **who}] if lost else []
    events += [{"e": "finish", "ns": 9, "status": status, "tokens": delivered, **who}]
    gone = {"user": "u", "req": "cmpl-2-0-cd"}
    for n in range(cut):
        events.append({"e": "dispatch", "ns": 10 + n, "step": 10 + n, "charged": True, **gone})
        events.append({"e": "output", "ns": 10 + n, "n": 1, **gone})
    whole = Stream(Ask("u", "p", 9), 0, request_id="cmpl-1", completion_tokens=usage)
    whole.finish_reason = reason
    cut_off = Stream(Ask("u", "p", 9), 0, request_id="cmpl-2", cancelled=True)
    return Play(EngineRecord.of(events), streams=[whole, cut_off])


def test_totals_add_up():
    verdict = totals(a_play(cut=2))
    assert verdict.ok
    assert verdict.figures == {
        "charged": 6,
        "usage": 3,
        "beyond_stop": 0,
        "cut_off": 2,
        "lost": 1,
        "refunded": 0,
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"charged": 3},  # one token was free
        {"lost": 0},  # one token is nowhere
        {"usage": 4},  # the client was told of one more
        {"delivered": 2},  # the engine says one less
        {"delivered": 4, "lost": 0},  # and nobody counted it
    ],
)
def test_totals_that_do_not(wrong):
    assert not totals(a_play(**wrong)).ok


def test_what_comes_after_a_stop_string_is_explained_and_nothing_else_is():
    stopped = {"status": "FINISHED_ABORTED", "reason": "stop", "usage": 2}
    assert totals(a_play(**stopped)).figures["beyond_stop"] == 1
    assert totals(a_play(**stopped)).ok
    assert not totals(a_play(**{**stopped, "usage": 4})).ok
    assert not totals(a_play(**{**stopped, "reason": "length"})).ok
    assert not totals(a_play(**{**stopped, "status": "FINISHED_STOPPED"})).ok


METRICS = """
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 2.0
vllm:num_requests_running{engine="1",model_name="tiny"} 1.0
vllm:num_requests_waiting{engine="0"} 0.0
vllm:num_requests_waiting_by_reason{engine="0"} 7.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:num_preemptions_total{engine="0"} 4.0
vllm:generation_tokens_total{engine="0"} 1e+03
"""


def test_metrics():
    seen = metrics.parse(METRICS)
    assert (seen.running, seen.waiting, seen.kv_usage, seen.generated) == (3, 0, 0.25, 1000)
    assert not seen.idle
    with pytest.raises(ValueError, match="vllm:num_preemptions_total"):
        metrics.parse(METRICS.replace("preemptions", "swaps"))


def test_the_tail_of_a_record(tmp_path):
    path = tmp_path / "record.jsonl"
    path.write_text(json.dumps(META) + "\n" + '{"e":"wait"}\n')
    tail = RecordTail(path)
    mark = tail.mark()
    with path.open("a") as file:
        file.write('{"e":"dispatch"}\n{"e":"cut o')
    assert tail.since(mark) == [META, {"e": "dispatch"}]
    assert len(tail.since(0)) == 3
    path.write_text('{"e":"dispatch"}\n')
    with pytest.raises(ValueError, match="not an engine record"):
        RecordTail(path)


def a_result():
    good = Scenario("matrix", "gcra-sync-roomy", "holds", 1.5, "", [Verdict("rate", True, "20.1")])
    good.paces.append(Pace("u: 20 tok/s", (0, 50_000_000), lambda width: 3, 20.0))
    good.gaps_ns["u"] = [50_000_000]
    good.batches = [(0, 1), (50_000_000, 2)]
    bad = Scenario("matrix", "gcra-async-roomy", "BROKEN", 1.5, "rate")
    bad.verdicts.append(Verdict("rate", False, "40 <tok/s>", {"tok_s": 40}))
    left_out = Scenario("sigterm", "gcra-sync-roomy", why="not ours")
    return Results("tiny on cpu", [good, bad, left_out])


def test_the_report(tmp_path):
    found = a_result()
    report.write(found, tmp_path)
    written = (tmp_path / "index.html").read_text()
    assert written == page(found)
    assert "http" not in written.replace("http-equiv", "")  # it needs nothing else
    assert written.count("<svg") == 3
    assert "40 &lt;tok/s&gt;" in written
    saved = json.loads((tmp_path / "results.json").read_text())["scenarios"]
    assert [s["outcome"] for s in saved] == ["holds", "BROKEN", "not run"]
    assert saved[1]["verdicts"][0]["figures"] == {"tok_s": 40}


def test_the_terminal_lists_what_did_not_run():
    shown = "\n".join(text.lines(a_result()))
    assert "not run: sigterm (gcra-sync-roomy): not ours" in shown
    assert "1 holds, 1 BROKEN, 1 not run" in shown
    assert "40 <tok/s>" in shown


def test_the_connections_of_a_process():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert connections.by_process(os.getpgrp(), port) == {}
        with socket.create_connection(("127.0.0.1", port)), listening.accept()[0]:
            assert connections.by_process(os.getpgrp(), port) == {os.getpid(): 1}
            assert connections.by_process(os.getpgrp() + 1, port) == {}
