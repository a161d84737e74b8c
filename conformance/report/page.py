"""The result as one HTML page that needs nothing else: the matrix, every rule, and the paces."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from conformance.report.frame import framed
from conformance.report.plot import plot
from conformance.report.text import levels
from conformance.results import Result, Results
from conformance.spec import SEMANTICS, SPEC_VERSION, rules


def page(results: Results) -> str:
    """The whole page."""
    parts = [*_matrix(results), *_paces(results), *_rules(results), *_unclaimed(results)]
    summary = f"Spec version {SPEC_VERSION}; {levels(results)}."
    return framed("Output rate conformance", summary, parts)


def _matrix(results: Results) -> Iterator[str]:
    modes = results.modes()
    yield '<h2>Semantics and backends</h2><div class="wide"><table><thead><tr><th rowspan="2"></th>'
    for backend in results.backends:
        yield f'<th colspan="{len(modes)}">{escape(backend)}</th>'
    yield "</tr><tr>"
    yield from (f"<th>{escape(mode)}</th>" for _ in results.backends for mode in modes)
    yield "</tr></thead><tbody>"
    for semantic, text in SEMANTICS.items():
        yield f"<tr><th>{semantic} {escape(text)}</th>"
        for backend in results.backends:
            for mode in modes:
                cell = results.cell(semantic, backend, mode)
                more = f"<small>{escape(cell.figure)}</small>" if cell.figure else ""
                yield f"<td>{_status(cell.status)}{more}</td>"
        yield "</tr>"
    yield "</tbody></table></div>"


def _status(status: str) -> str:
    known = status if status in ("passed", "deviation", "partial", "FAILED") else "none"
    return f'<span class="{known}">{escape(status)}</span>'


def _paces(results: Results) -> Iterator[str]:
    drawn = [(result, pace) for result in results.all for pace in result.paces]
    if not drawn:
        return
    yield "<h2>Tokens over time against the bound</h2>"
    yield "<p>Stair: tokens granted. Red: the most that the backend's contract allows from the "
    yield 'first token on. Dashed: the rate.</p><div class="plots">'
    for result, pace in drawn:
        caption = f"{result.backend} {result.mode}, {result.rule.id}"
        yield f"<figure>{plot(pace)}<figcaption>{escape(caption)}</figcaption></figure>"
    yield "</div>"


def _rules(results: Results) -> Iterator[str]:
    yield '<h2>Rule by rule</h2><div class="wide"><table><thead><tr>'
    yield "<th>Rule</th><th>Backend</th><th>Mode</th><th>Outcome</th><th>Figures</th></tr></thead>"
    yield "<tbody>"
    order = list(rules())
    for result in sorted(results.all, key=lambda r: (order.index(r.rule.id), r.backend)):
        yield from _row(result)
    yield "</tbody></table></div>"


def _row(result: Result) -> Iterator[str]:
    rule = result.rule
    yield f'<tr><td title="{escape(rule.statement)}">{rule.id}<small>{escape(rule.intent)}</small>'
    yield f"</td><td>{escape(result.backend)}</td><td>{escape(result.mode)}</td>"
    yield f"<td>{_status(result.outcome)}</td><td>{escape('; '.join(result.figures))}"
    if result.message:
        yield f"<small>{escape(result.message)}</small>"
    yield "</td></tr>"


def _unclaimed(results: Results) -> Iterator[str]:
    if results.unclaimed:
        yield "<h2>Rules that a contract does not claim</h2><ul>"
        for backend in results.backends:
            ids = sorted(rule for rule, whose in results.unclaimed if whose == backend)
            if ids:
                yield f"<li>{escape(backend)}: {', '.join(ids)}</li>"
        yield "</ul>"
