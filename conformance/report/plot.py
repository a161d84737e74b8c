"""Tokens over time against the bound, as an inline SVG."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from conformance.rules import Pace

_WIDTH, _HEIGHT = 520, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 26, 34
_POINTS = 240

_Point = tuple[float, float]


def plot(pace: Pace) -> str:
    """The run as a stair, the bound from its first token as a line above it."""
    instants = sorted(pace.instants_ns)
    if not instants:
        return ""
    start, span = instants[0], max(1, instants[-1] - instants[0])
    grants = list(_stair([at - start for at in instants], span))
    bound = [
        (at, float(pace.bound(at))) for at in (span * i // _POINTS for i in range(_POINTS + 1))
    ]
    rate = [(0.0, 0.0), (span, span * pace.rate / 1e9)]
    top = max(y for line in (grants, bound, rate) for _, y in line)

    def line(points: Iterable[_Point], css: str) -> str:
        path = " ".join(f"{_x(x, span):.1f},{_y(y, top):.1f}" for x, y in points)
        return f'<polyline class="{css}" points="{path}"/>'

    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(pace.title)}">',
        f'<text class="title" x="{_LEFT}" y="16">{escape(pace.title)}</text>',
        *_axes(span, top),
        line(rate, "rate"),
        line(_corners(bound), "bound"),
        line(grants, "grants"),
        "</svg>",
    ]
    return "\n".join(parts)


def _stair(instants: Sequence[int], span: int) -> Iterator[_Point]:
    yield 0.0, 0.0
    for count, at in enumerate(instants, 1):
        yield at, count - 1
        yield at, count
    yield span, len(instants)


def _corners(points: Sequence[_Point]) -> Iterator[_Point]:
    """A bound jumps; a slanted line between two of its values would promise what it does not."""
    before = points[0][1]
    for x, y in points:
        yield x, before
        yield x, y
        before = y


def _axes(span: int, top: float) -> Iterator[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    yield f'<path class="axis" d="M{_LEFT},{_TOP} V{bottom} H{right}"/>'
    for part in range(5):
        x, y = _x(span * part / 4, span), _y(top * part / 4, top)
        at, tokens = span * part / 4 / 1e9, top * part / 4
        yield _label(x, bottom + 15, "middle", f"{at:.3g}")
        yield _label(_LEFT - 6, y + 4, "end", f"{tokens:.3g}")
    yield _label(right, _HEIGHT - 4, "end", "seconds")
    yield _label(4, _TOP - 10, "start", "tokens")


def _label(x: float, y: float, anchor: str, text: str) -> str:
    return f'<text class="tick" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{text}</text>'


def _x(at: float, span: int) -> float:
    return _LEFT + at / span * (_WIDTH - _LEFT - _RIGHT)


def _y(tokens: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - tokens / top * (_HEIGHT - _TOP - _BOTTOM)
