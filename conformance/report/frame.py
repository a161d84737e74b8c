"""What every page of results has in common: a head, colours for light and dark, nothing to load."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --faint: #667; --paper: #fff; --line: #d5d9e0;
  --good: #1a7f37; --known: #9a6700; --bad: #cf222e; --mark: #0969da; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --faint: #9aa4b2; --paper: #14171b;
  --line: #363c45; --good: #57ab5a; --known: #c69026; --bad: #f47067; --mark: #6cb6ff; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  margin: 2rem auto; max-width: 74rem; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; }
th, td { border: 1px solid var(--line); padding: .3rem .6rem; text-align: left;
  vertical-align: top; }
th { font-weight: 600; }
small { color: var(--faint); display: block; }
.passed, .holds { color: var(--good); } .deviation, .partial { color: var(--known); }
.FAILED, .BROKEN { color: var(--bad); font-weight: 600; } .none { color: var(--faint); }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(26rem, 1fr)); gap: 1rem; }
figure { margin: 0; }
svg { width: 100%; border: 1px solid var(--line); }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; } svg .tick { fill: var(--faint); }
svg .title { font-weight: 600; } svg .axis { stroke: var(--faint); fill: none; }
polyline { fill: none; stroke-width: 1.5; } .bar { fill: var(--mark); }
.grants { stroke: var(--mark); stroke-width: 2; } .bound { stroke: var(--bad); }
.rate { stroke: var(--faint); stroke-dasharray: 4 4; }
"""


def framed(title: str, summary: str, parts: Iterable[str]) -> str:
    """The whole page: `title` and `summary` are plain text, `parts` are HTML."""
    lines = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(summary)}</p>",
        *parts,
        "</body></html>",
    ]
    return "\n".join(lines) + "\n"
