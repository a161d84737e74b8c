"""The result as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from conformance.report.frame import framed
from conformance.report.plot import plot
from gpu_e2e.suite import charts
from gpu_e2e.suite.results import Results, Scenario


def page(results: Results) -> str:
    """The whole page."""
    counts = ", ".join(f"{results.count(o)} {o}" for o in ("holds", "BROKEN", "not run"))  # type: ignore[arg-type]
    parts = [*_table(results), *_drawings(results), *_details(results)]
    return framed("Output rates on a real engine", f"{results.title}. {counts}.", parts)


def _table(results: Results) -> Iterator[str]:
    servers = list(dict.fromkeys(s.server for s in results.scenarios))
    found = {(s.name, s.server): s for s in results.scenarios}
    yield '<div class="wide"><table><thead><tr><th>Scenario</th>'
    yield from (f"<th>{escape(server)}</th>" for server in servers)
    yield "</tr></thead><tbody>"
    for name in dict.fromkeys(s.name for s in results.scenarios):
        yield f"<tr><td>{escape(name)}</td>"
        for server in servers:
            scenario = found.get((name, server))
            yield f"<td>{_outcome(scenario) if scenario else ''}</td>"
        yield "</tr>"
    yield "</tbody></table></div>"


def _outcome(scenario: Scenario) -> str:
    css = scenario.outcome if scenario.outcome != "not run" else "none"
    more = f"<small>{escape(scenario.why)}</small>" if scenario.outcome == "not run" else ""
    return f'<span class="{css}">{scenario.outcome}</span>{more}'


def _drawings(results: Results) -> Iterator[str]:
    drawn = [s for s in results.scenarios if s.paces]
    if not drawn:
        return
    yield "<h2>Tokens over time, gaps, batches</h2>"
    yield "<p>Stair: tokens dispatched by the engine. Red: the most that the limiter promises from "
    yield "the first token on. Dashed: the limit.</p>"
    for scenario in drawn:
        yield f"<h3>{escape(scenario.server)}: {escape(scenario.name)}</h3><div class='plots'>"
        yield from (f"<figure>{plot(pace)}</figure>" for pace in scenario.paces)
        for user, found in scenario.gaps_ns.items():
            yield f"<figure>{charts.gaps(f'{user}: gaps between tokens', found)}</figure>"
        yield f"<figure>{charts.batches('sequences in a step', scenario.batches)}</figure></div>"


def _details(results: Results) -> Iterator[str]:
    yield '<h2>Scenario by scenario</h2><div class="wide"><table><thead><tr>'
    yield "<th>Scenario</th><th>Server</th><th>Outcome</th><th>Verdicts</th></tr></thead><tbody>"
    for scenario in results.scenarios:
        yield f"<tr><td>{escape(scenario.name)}<small>{scenario.seconds:.1f} s</small></td>"
        yield f"<td>{escape(scenario.server)}</td><td>{_outcome(scenario)}</td><td>"
        for verdict in scenario.verdicts:
            css = "holds" if verdict.ok else "BROKEN"
            figures = ", ".join(f"{k} {v}" for k, v in verdict.figures.items())
            yield f'<div title="{escape(figures)}"><span class="{css}">{escape(verdict.rule)}'
            yield f"</span> {escape(verdict.message)}</div>"
        if scenario.outcome == "BROKEN" and not any(not v.ok for v in scenario.verdicts):
            yield f'<div class="BROKEN">{escape(scenario.why[:2000])}</div>'
        yield "</td></tr>"
    yield "</tbody></table></div>"
