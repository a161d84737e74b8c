"""The result in the terminal: a table of scenarios by servers, the figures, what did not run."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_e2e.suite.results import Results

_MARK = {"holds": "holds", "BROKEN": "BROKEN", "not run": "-"}


def lines(results: Results) -> Iterator[str]:
    """Line by line."""
    servers = list(dict.fromkeys(s.server for s in results.scenarios))
    columns = list(dict.fromkeys(_column(server) for server in servers))
    found = {(s.name, _column(s.server)): s for s in results.scenarios}
    names = list(dict.fromkeys(s.name for s in results.scenarios))
    left = max(map(len, names), default=0) + 2
    wide = [max(len(column), 6) + 2 for column in columns]
    yield results.title
    yield ""
    yield " " * left + "".join(f"{c:{w}}" for c, w in zip(columns, wide, strict=True))
    for name in names:
        row = f"{name:{left}}"
        for column, width in zip(columns, wide, strict=True):
            scenario = found.get((name, column))
            row += f"{_MARK[scenario.outcome] if scenario else '':{width}}"
        yield row.rstrip()
    yield ""
    yield from _figures(results)
    yield from _not_run(results)
    counts = [f"{results.count(o)} {o}" for o in ("holds", "BROKEN", "not run")]  # type: ignore[arg-type]
    yield ", ".join(counts)


def _column(server: str) -> str:
    return server.rpartition("-")[0] or server


def _figures(results: Results) -> Iterator[str]:
    for scenario in results.scenarios:
        shown = [v for v in scenario.verdicts if v.rule.startswith("figure") or not v.ok]
        for verdict in shown:
            mark = "" if verdict.ok else "BROKEN "
            yield f"{mark}{scenario.server}, {scenario.name}: {verdict.message}"
    yield ""


def _not_run(results: Results) -> Iterator[str]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for scenario in results.scenarios:
        if scenario.outcome == "not run":
            reasons.setdefault((scenario.name, scenario.why), []).append(scenario.server)
    for (name, why), where in reasons.items():
        yield f"not run: {name} ({', '.join(where)}): {why or 'no reason given'}"
