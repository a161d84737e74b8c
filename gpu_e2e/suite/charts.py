"""Two small inline SVG charts: how often a user waited how long, and how full the steps were."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_WIDTH, _HEIGHT = 520, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 28, 34
_BARS = 40
_SLOTS = 240


def gaps(title: str, gaps_ns: Sequence[int]) -> str:
    """A histogram of gaps between tokens, in ms."""
    if not gaps_ns:
        return ""
    longest = max(gaps_ns)
    counts = [0] * _BARS
    for gap in gaps_ns:
        counts[min(_BARS - 1, gap * _BARS // max(1, longest))] += 1
    return _bars(title, counts, f"{longest / 1e6:.3g} ms", "gaps")


def batches(title: str, steps: Sequence[tuple[int, int]]) -> str:
    """The largest number of sampled positions of a step, over time."""
    if not steps:
        return ""
    start, span = steps[0][0], max(1, steps[-1][0] - steps[0][0])
    most = [0] * _SLOTS
    for ns, count in steps:
        slot = min(_SLOTS - 1, (ns - start) * _SLOTS // span)
        most[slot] = max(most[slot], count)
    return _bars(title, most, f"{span / 1e9:.3g} s", "sequences")


def _bars(title: str, values: Sequence[int], right: str, unit: str) -> str:
    top, bottom = max(1, *values), _HEIGHT - _BOTTOM
    wide = (_WIDTH - _LEFT - _RIGHT) / len(values)
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">',
        f'<text class="title" x="{_LEFT}" y="16">{escape(title)}</text>',
        f'<path class="axis" d="M{_LEFT},{_TOP} V{bottom} H{_WIDTH - _RIGHT}"/>',
        f'<text class="tick" x="{_LEFT - 6}" y="{_TOP + 8}" text-anchor="end">{top}</text>',
        f'<text class="tick" x="{_LEFT}" y="{bottom + 15}">0</text>',
        f'<text class="tick" x="{_WIDTH - _RIGHT}" y="{bottom + 15}" text-anchor="end">'
        f"{escape(right)}</text>",
        f'<text class="tick" x="{_LEFT + 6}" y="{_TOP + 8}">{escape(unit)}</text>',
    ]
    for index, value in enumerate(values):
        if value:
            tall = value / top * (bottom - _TOP)
            x = _LEFT + index * wide
            parts.append(
                f'<rect class="bar" x="{x:.1f}" y="{bottom - tall:.1f}" '
                f'width="{wide:.2f}" height="{tall:.1f}"/>'
            )
    return "\n".join([*parts, "</svg>"])
