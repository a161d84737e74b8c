"""One conformance run inside pytest: who is tried, what a deviation excuses, what came out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable
from typing import Any

import pytest

from conformance.plugin import HERE
from conformance.results import DEVIATION, FAILED, PASSED, Result, Results
from conformance.rules import Trial
from conformance.selection import Selection
from conformance.spec import LEVELS, rules

_DEPTHS = {1: "sync", 2: "async"}
_Group = tuple[str, str]  # rule id, backend


class Run:
    """Registered as a pytest plugin when a conformance option is used."""

    def __init__(self, config: pytest.Config, selection: Selection) -> None:
        self.config = config
        self.selection = selection
        self.results = Results(selection.levels)
        self._trials: dict[str, Trial] = {}
        self._deviations: dict[_Group, str] = {}
        self._collected: Counter[_Group] = Counter()
        self._pending: Counter[_Group] = Counter()
        self._failed_once: set[_Group] = set()

    # Who is tried.

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if not _is_rule(metafunc.definition):
            return
        chosen: dict[str, tuple[Iterable[Any], Any]] = {
            "contract": (self.selection.contracts, lambda each: each.name),
            "scheduler": (self.selection.schedulers, lambda each: each.name),
            "depth": (_DEPTHS, _DEPTHS.get),
        }
        for name, (values, named) in chosen.items():
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, list(values), ids=named)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        kept, dropped = [], []
        for item in items:
            if not _is_ours(item):
                kept.append(item)
                continue
            trial = self.trial_of(item)
            contract = _parameter(item, "contract")
            if contract is not None and not _claims(contract, item, trial):
                self.results.unclaimed.add((trial.rule.id, trial.backend))
                dropped.append(item)
                continue
            self._collected[trial.rule.id, trial.backend] += 1
            kept.append(item)
        items[:] = kept
        if dropped:
            config.hook.pytest_deselected(items=dropped)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            if _is_ours(item):
                trial = self.trial_of(item)
                self._pending[trial.rule.id, trial.backend] += 1

    def trial_of(self, item: pytest.Item) -> Trial:
        """The trial of a rule's test."""
        if item.nodeid not in self._trials:
            self._trials[item.nodeid] = self._make_trial(item)
        return self._trials[item.nodeid]

    def _make_trial(self, item: pytest.Item) -> Trial:
        mark = item.get_closest_marker("rule")
        if mark is None:
            raise pytest.UsageError(f"conformance: {item.nodeid} names no rule")
        rule = rules()[mark.args[0]]
        contract, scheduler = _parameter(item, "contract"), _parameter(item, "scheduler")
        names = [each.name for each in (contract, scheduler) if each is not None]
        if contract is not None and len(self.selection.schedulers) <= 1:
            names = [contract.name]
        backend = " in ".join(names) or "-"
        for each in (contract, scheduler):
            if reason := getattr(each, "deviations", {}).get(rule.id):
                self._deviations[rule.id, backend] = reason
        if backend not in self.results.backends:
            self.results.backends.append(backend)
        mode = {1: "alone", 3: "endpoint"}.get(rule.level) or _DEPTHS[_parameter(item, "depth", 1)]
        return Trial(rule, backend, mode)

    # What came out.

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        if report.outcome == "skipped" and _is_ours(collector):
            report.outcome = "failed"
            report.longrepr = f"conformance: {collector.nodeid}: rules must not be skipped"
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if _is_ours(item):
            trial = self.trial_of(item)
            if report.skipped:
                report.outcome = "failed"
                report.longrepr = f"{trial.rule.id}: a rule must not be skipped or xfailed inside"
                report.__dict__.pop("wasxfail", None)
            if call.when == "call" or report.failed:
                self._conclude(item, trial, call, report)
        return report

    def _conclude(
        self,
        item: pytest.Item,
        trial: Trial,
        call: pytest.CallInfo[None],
        report: pytest.TestReport,
    ) -> None:
        group = trial.rule.id, trial.backend
        error = call.excinfo.value if call.excinfo is not None else None
        message = _one_line(error) if error is not None else ""
        outcome = FAILED if report.failed else PASSED
        if call.when == "call":
            self._pending[group] -= 1
        if reason := self._deviations.get(group):
            if report.failed:
                self._failed_once.add(group)
            if report.failed and isinstance(error, AssertionError):
                report.outcome = "skipped"
                report.wasxfail = f"deviation: {reason}"
                message, outcome = f"{reason}. As declared: {message}", DEVIATION
            elif not report.failed and self._no_longer_fails(group):
                message = (
                    f"{trial.rule.id} no longer fails for {trial.backend}: "
                    f"take the deviation out of its contract"
                )
                report.outcome, report.longrepr, outcome = "failed", message, FAILED
        if outcome == FAILED and trial.rule.id not in message:
            message = f"{trial.rule.id} broken by {trial.backend} ({trial.mode}): {message}"
            report.sections.append(("rule", message))
        self.results.all.append(
            Result(
                trial.rule,
                trial.backend,
                trial.mode,
                outcome,
                message or str(report.longrepr or ""),
                tuple(trial.figures),
                tuple(trial.paces),
            )
        )
        item.user_properties += [
            ("rule", trial.rule.id),
            ("semantic", trial.rule.semantic),
            ("level", str(trial.rule.level)),
            ("backend", trial.backend),
            ("mode", trial.mode),
            ("conformance", outcome.lower()),
            *(("figure", text) for text in trial.figures),
        ]

    def _no_longer_fails(self, group: _Group) -> bool:
        """Whether this was the last test of a rule that was to fail, and none did.

        Where some of its tests were left out of the run (`-k`), nothing can be said.
        """
        ran = sum((r.rule.id, r.backend) == group for r in self.results.all) + 1
        whole = ran == self._collected[group]
        return whole and self._pending[group] == 0 and group not in self._failed_once

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        from conformance.report.text import lines

        terminalreporter.section("conformance")
        for line in lines(self.results):
            terminalreporter.line(line)
        if path := self.config.option.conformance_html:
            from conformance.report.page import page

            with open(path, "w", encoding="utf-8") as file:
                file.write(page(self.results))
            terminalreporter.line(f"page with plots: {path}")


def _is_ours(node: pytest.Item | pytest.Collector) -> bool:
    return any(node.path.is_relative_to(HERE / f"level{level}") for level in LEVELS)


def _is_rule(node: pytest.Item) -> bool:
    return _is_ours(node) and node.get_closest_marker("rule") is not None


def _parameter(item: pytest.Item, name: str, default: Any = None) -> Any:
    callspec = getattr(item, "callspec", None)
    return callspec.params.get(name, default) if callspec is not None else default


def _claims(contract: Any, item: pytest.Item, trial: Trial) -> bool:
    mark = item.get_closest_marker("rule")
    claimed = mark.kwargs.get("claimed") if mark is not None else None
    if trial.rule.since > contract.spec_version:
        return False
    return claimed is None or claimed(contract)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, AssertionError) and text else f"{type(error).__name__}: {text}"
