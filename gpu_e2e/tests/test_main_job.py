"""The main job around its server: what is asked, what is shown, and the exit status."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from types import SimpleNamespace

import pytest
from rich.console import Console

from conformance.endpoint.trace import Stream
from gpu_e2e import main_job, workload
from gpu_e2e.engine.launch import ServerFailed
from gpu_e2e.engine.vocabulary import number_of
from gpu_e2e.screen import Screen


class FakeDriver:
    """Answers at once; alice and bob are done when the test lets them."""

    stall_ns = 1

    def __init__(self):
        self.asked, self.let_go, self.now = [], asyncio.Event(), 0

    def clock(self):
        self.now += 1
        return self.now

    async def one(self, ask):
        return await self.start(ask)[1]

    def start(self, ask):
        self.asked.append(ask)
        stream = Stream(ask=ask, started_ns=self.clock())

        async def follow():
            if ask.user in workload.LIMITS:
                await self.let_go.wait()
            elif sum(a.user == workload.FREE for a in self.asked) == 9:
                self.let_go.set()
            stream.ended_ns = self.clock()
            return stream

        return stream, asyncio.create_task(follow())


@pytest.fixture(autouse=True)
def settle_at_once(monkeypatch):
    monkeypatch.setattr(workload, "SETTLE_S", 0.0)


def driven(**options):
    async def main():
        driver, run = FakeDriver(), workload.Run()
        await workload.drive(driver, run, lambda _: None, **options)
        return driver, run

    return asyncio.run(main())


def test_the_free_user_asks_everything_that_the_others_ask_and_goes_on():
    driver, run = driven()
    limited = [a for a in driver.asked if a.user in workload.LIMITS]
    free = [a for a in driver.asked if a.user == workload.FREE]
    assert [a.name for a in limited] == list(workload.expected_tokens())
    assert free[0].name == "warm-up"
    assert free[1].name == "alone"
    assert free[-1].name == "settle"
    company = free[2:-1]
    assert [(a.prompt, a.max_tokens) for a in company[:5]] == [
        (a.prompt, a.max_tokens) for a in limited
    ]
    assert len(company) == 7, "it goes on until the others are done, and then stops"
    assert "warm-up" not in [s.ask.name for s in run.streams]
    assert run.alone[1] <= run.together[0] < run.together[1]


def test_only_the_projects_own_model_is_trusted_to_end_by_itself():
    own = workload.limited_asks()
    assert all(ask.max_tokens > workload.ALICE_TOKENS // 4 for ask in own[:-1])
    other = workload.limited_asks(counts_itself=False)
    assert {ask.max_tokens for ask in other[:-1]} == {workload.ALICE_TOKENS // 4}
    assert all(ask.extra == {"ignore_eos": True} for ask in other)
    assert number_of(0) is None


@pytest.mark.parametrize("streams", [1, 2, 4])
def test_the_run_is_long_enough_to_be_judged(streams):
    tokens = workload.expected_tokens(streams)
    for user, rate in workload.LIMITS.items():
        total = sum(count for name, count in tokens.items() if name.startswith(user))
        assert total / rate > 11


@pytest.fixture
def job(monkeypatch, tmp_path, world):
    """`main` with the server, the model and the drive replaced; `give(world)` sets the outcome."""
    given = {}

    class FakeServer:
        base_url = "http://127.0.0.1:1/v1"

        @staticmethod
        @contextlib.contextmanager
        def start(path, *, log, engine, flags, served_name):
            given.setdefault("flags", []).append(flags)
            if isinstance(given["outcome"], Exception):
                raise given["outcome"]
            record = flags[flags.index("--output-rate-record") + 1]
            events = [{**e, "format": 1} for e in given["outcome"][engine.mode].events]
            with open(record, "w") as out:
                out.writelines(json.dumps(e) + "\n" for e in events)
            given["mode"] = engine.mode
            yield FakeServer

    async def drive(*_, **__):
        return given["outcome"][given["mode"]].run

    monkeypatch.setattr(main_job, "Server", FakeServer)
    monkeypatch.setattr(main_job, "_drive", drive)
    monkeypatch.setattr(main_job.model, "cached", lambda: "the-model")

    def run(outcome, *arguments):
        given["outcome"] = outcome
        return main_job.main(["--reports", str(tmp_path), *arguments]), given

    return run


def test_status_0_and_a_verdict_per_semantic_in_both_modes(job, world, capsys):
    status, given = job({"sync": world("sync"), "async": world("async")})
    shown = capsys.readouterr().out
    assert status == 0
    assert shown.count("holds ") == 10
    assert "BROKEN" not in shown
    assert "all five semantics hold" in shown
    limits = json.loads(given["flags"][0][1])
    assert given["flags"][0][0] == "--user-output-tokens-per-second"
    assert limits == {"alice": 20, "bob": 100}


def test_status_1_if_a_bound_is_broken_in_one_of_them(job, world, capsys):
    status, _ = job({"sync": world("sync"), "async": world("async", times=2)})
    assert status == 1
    shown = capsys.readouterr().out
    assert "BROKEN 2" in shown
    assert "broken in 1 of 2 runs" in shown
    assert "This host was busy" not in shown
    busy = world("sync", times=2)
    busy.run.stall_ns = 600_000_000
    assert job({"sync": busy}, "--mode", "sync")[0] == 1
    assert "This host was busy" in capsys.readouterr().out


def test_status_2_in_one_line_if_there_is_nothing_to_judge(job, world, capsys):
    status, _ = job(ServerFailed("the server ended with status 1; log x, its last lines:\nboom"))
    assert status == 2
    assert "boom" in capsys.readouterr().err
    nothing = SimpleNamespace(events=[{"e": "output", "ns": 1}], run=workload.Run())
    status, _ = job({"sync": nothing}, "--mode", "sync")
    assert status == 2
    assert "not an engine record" in capsys.readouterr().err


def quiet(**options):
    return Console(width=100, record=True, file=io.StringIO(), **options)


def test_the_live_table_shows_streams_tokens_pace_limit_and_gap(world):
    console = quiet()
    half = world().run
    half.of("alice")[0].ended_ns = None
    screen = Screen(console, clock=lambda: half.of("bob")[0].ended_ns)
    console.print(screen.table(half))
    shown = console.export_text()
    for word in ("limit", "streams", "tokens", "tok/s", "longest gap", "1 of 4", "20.2", "240"):
        assert word in shown, word
    assert "alice-3" in shown
    assert "alone" not in shown


def test_a_live_screen_draws_and_a_pipe_gets_lines(world, monkeypatch):
    monkeypatch.setattr("gpu_e2e.screen.LINE_EVERY_S", 0.0)
    monkeypatch.setattr("gpu_e2e.screen.REFRESH_S", 0.0)
    run = world().run

    async def watch(screen):
        screen.phase("all together")
        async with screen.watching(run):
            for _ in range(5):
                await asyncio.sleep(0)

    for terminal, expected in ((True, "alice-0"), (False, "all together: alice 240 tokens")):
        console = quiet(force_terminal=terminal)
        asyncio.run(watch(Screen(console)))
        assert expected in console.export_text()
