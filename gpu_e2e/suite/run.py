"""The run itself: which scenario on which server, in which order, and what becomes of it."""

from __future__ import annotations

import functools
import json
import signal
import time
import urllib.request
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from gpu_e2e.engine import model
from gpu_e2e.engine.launch import ServerFailed
from gpu_e2e.suite import users
from gpu_e2e.suite.live import Live
from gpu_e2e.suite.options import Options
from gpu_e2e.suite.play import Play
from gpu_e2e.suite.report import write
from gpu_e2e.suite.results import Results, Scenario
from gpu_e2e.suite.servers import Key, Servers
from gpu_e2e.suite.tail import RecordTail
from gpu_e2e.suite.text import lines

_LOG_LINES = 40
_ELSEWHERE = "at --base-url"


def keys_for(definition: Any, options: Options) -> list[Key]:
    """The servers that a scenario runs on."""
    marker = definition.get_closest_marker("flags")
    flags = marker.args[0] if marker else "roomy"
    if options.base_url is not None:
        return [Key(_ELSEWHERE, "", flags)]
    keys = [Key(backend, mode, flags) for backend, mode in options.engines]
    once = definition.get_closest_marker("once")
    if once is None:
        return keys
    wanted = [key for key in keys if (key.backend, key.mode)[: len(once.args)] == once.args]
    return wanted if once.args and wanted else keys[:1]


def key_of(item: pytest.Item) -> Key | None:
    """The server of a collected scenario; None for one that makes do without."""
    spec = getattr(item, "callspec", None)
    return spec.params.get("live") if spec else None


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Server by server, so that each is started once; those that end their server last."""
    keys = list(dict.fromkeys(map(key_of, items)))
    # All flags of one backend and mode together, whichever scenario was collected first.
    groups = list(dict.fromkeys((k.backend, k.mode) if k else None for k in keys))

    def place(item: pytest.Item) -> tuple[int, str, bool]:
        key = key_of(item)
        if key is None:
            return -1, "", False
        ends_it = item.get_closest_marker("last") is not None
        return groups.index((key.backend, key.mode)), key.flags, ends_it

    return sorted(items, key=place)  # stable: files and lines keep their order


class Run:
    """A pytest plugin for as long as scenarios run."""

    def __init__(self, options: Options, config: pytest.Config):
        self.options = options
        self.servers = Servers(options)
        self.results = Results(title=_title(options))
        self._config = config
        self._of: dict[str, Scenario] = {}  # by node id
        self._shared: dict[Key, dict[str, Play]] = {}

    def lend(self, request: pytest.FixtureRequest) -> Iterator[Live]:
        """The fixture `live`."""
        key: Key = request.param
        scenario = self._of[request.node.nodeid]
        shared = self._shared.setdefault(key, {})
        if self.options.base_url is not None:
            scenario.why = self._unfit(key.flags, request.module.__name__)
            if scenario.why:
                pytest.skip(scenario.why)
            assert self.options.record is not None
            tail, url = RecordTail(self.options.record), self.options.base_url
            yield Live(key, self.options, url, tail, scenario, self._serves_tiny, shared=shared)
            return
        server = self.servers.of(key)
        tail = RecordTail(self.servers.folder(key) / "record.jsonl")
        url, tiny = server.base_url, self._serves_tiny
        yield Live(key, self.options, url, tail, scenario, tiny, server, shared)
        if not server.alive() and request.node.get_closest_marker("last") is None:
            raise ServerFailed(f"the server died; {server.log} says:\n{_errors(server.log)}")

    def _unfit(self, flags: str, module: str) -> str:
        """Why a scenario cannot be judged at --base-url; empty if it can."""
        if self.options.record is None:
            return "it is judged from the engine's record: give --record PATH"
        meta, given = RecordTail(self.options.record).meta, users.rates_of(module)
        if any(Fraction(meta["rates"].get(user, 0)) != rate for user, rate in given.items()) or (
            meta["default_rate"] is not None
        ) != (flags == "tight"):
            return f"its server needs the flags {flags!r} in {self.options.reports / 'flags.txt'}"
        return ""

    @functools.cached_property
    def _serves_tiny(self) -> bool:
        url = self.options.base_url
        if url is None:
            return self.options.model is None
        with urllib.request.urlopen(url + "/models", timeout=30.0) as answer:
            served = json.load(answer)["data"]
        return any(Path(each["root"]).name == model.cached().name for each in served)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        key = key_of(item)
        if key is None and "scenarios" not in item.path.parts:
            return (yield)
        name = item.name.partition("[")[0].removeprefix("test_").replace("_", " ")
        scenario = self._of[item.nodeid] = Scenario(name, str(key) if key else "no server")
        self.results.scenarios.append(scenario)
        started = time.monotonic()
        try:
            return (yield)
        finally:
            scenario.seconds = round(time.monotonic() - started, 1)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Iterator[None]:
        report = yield
        scenario = self._of.get(item.nodeid)
        if scenario is None:
            return report
        if report.failed:
            scenario.outcome = "BROKEN"
            scenario.why = str(call.excinfo.value).strip() if call.excinfo else ""
            key = key_of(item)
            log = self.servers.folder(key) / "server.log" if key else None
            if log is not None and log.exists():
                report.sections.append((f"server log, {log}", _errors(log)))
        elif report.when == "call" and report.passed and scenario.outcome != "BROKEN":
            scenario.outcome = "holds"
        return report

    def alone(self, request: pytest.FixtureRequest) -> Scenario:
        """The fixture `alone`: no server of the run lives meanwhile."""
        self.servers.stop()
        return self._of[request.node.nodeid]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Iterator[None]:
        # Told to end, it ends as by Ctrl-C: with its server stopped and its report written.
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            return (yield)
        finally:
            signal.signal(signal.SIGTERM, before)

    @pytest.hookimpl(trylast=True)  # after the fixtures' own ends
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.servers.stop()
        ran = self.results.count("holds") + self.results.count("BROKEN")
        if self.results.scenarios and not ran and session.exitstatus == pytest.ExitCode.OK:
            # An all-skipped run must not look green.
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
        if self.results.scenarios:
            write(self.results, self.options.reports)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.results.scenarios:
            return
        terminalreporter.section("output rates on a real engine")
        for line in lines(self.results):
            terminalreporter.write_line(line)
        terminalreporter.write_line(f"report: {self.options.reports / 'index.html'}")


def _errors(log: Path) -> str:
    """The last of what went wrong by the log, else its last lines."""
    lines = log.read_text(errors="replace").splitlines()
    wrong = [line for line in lines if "ERROR" in line or "Error" in line]
    return "\n".join((wrong or lines)[-_LOG_LINES:])


def _title(options: Options) -> str:
    if options.base_url is not None:
        return f"{options.served_as} at {options.base_url}"
    model = options.model or "the project's tiny model"
    engines = [f"{backend} {mode}" for backend, mode in options.engines]
    return f"{model} on {options.device}: {', '.join(engines)}"
