"""The closing matrix in the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.results import DEVIATION, FAILED, PARTIAL, Results
from conformance.spec import LEVELS, SEMANTICS, SPEC_VERSION

_WIDTH = 11


def lines(results: Results) -> Iterator[str]:
    """The matrix, then its key figures, then whatever is not simply passed."""
    yield f"spec version {SPEC_VERSION}; {levels(results)}"
    yield ""
    yield from _matrix(results)
    yield from _figures(results)
    yield from _exceptions(results)


def levels(results: Results) -> str:
    """Which levels ran. A level that did not is never shown as passed."""
    parts = []
    for level, what in LEVELS.items():
        ran = level in results.levels and any(r.rule.level == level for r in results.all)
        parts.append(f"level {level} ({what}): {'run' if ran else 'not run'}")
    return ", ".join(parts)


def _matrix(results: Results) -> Iterator[str]:
    columns = [(backend, mode) for backend in results.backends for mode in results.modes()]
    wide = max(_WIDTH, *(len(backend) + 2 for backend in results.backends), 0)
    left = max(len(f"{key} {text}") for key, text in SEMANTICS.items()) + 2
    yield " " * left + "".join(f"{backend:{wide}}" for backend, _ in columns)
    yield " " * left + "".join(f"{mode:{wide}}" for _, mode in columns)
    for semantic, text in SEMANTICS.items():
        cells = [results.cell(semantic, *column).status for column in columns]
        yield f"{f'{semantic} {text}':{left}}" + "".join(f"{status:{wide}}" for status in cells)


def _figures(results: Results) -> Iterator[str]:
    found = [
        f"  {backend} {mode} {semantic}: {cell.figure}"
        for semantic, backend, mode, cell in results.cells()
        if cell.figure
    ]
    if found:
        yield ""
        yield "key figures"
        yield from found


def _exceptions(results: Results) -> Iterator[str]:
    for outcome, title in ((DEVIATION, "declared deviations"), (FAILED, "failed")):
        found = [result for result in results.all if result.outcome == outcome]
        if found:
            yield ""
            yield title
            for result in found:
                yield f"  {result.rule.id} {result.backend} {result.mode}: {result.message}"
    partial = [
        f"  {backend} {mode} {semantic}: {', '.join(cell.missing)}"
        for semantic, backend, mode, cell in results.cells()
        if cell.status in (PARTIAL, FAILED) and cell.missing
    ]
    if partial:
        yield ""
        yield "rules that did not run"
        yield from partial
    if results.unclaimed:
        yield ""
        yield "rules not claimed by the contract"
        for backend in results.backends:
            ids = sorted(rule for rule, whose in results.unclaimed if whose == backend)
            if ids:
                yield f"  {backend}: {', '.join(ids)}"
