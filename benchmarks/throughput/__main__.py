"""Stock and adapter on the real engine, limits not reached: `python -m benchmarks.throughput`."""

from __future__ import annotations

import argparse

from benchmarks.in_process import MODES, Mode, apart, tell
from benchmarks.throughput.ratios import Result, result
from benchmarks.throughput.run import PARTS, Work, engines, pairs

#: Tokens of each answer, and how many pairs: a long answer, and one that hardly outweighs the way
#: in and out.
WORKS = {128: 12, 16: 30}


def measured(mode: Mode) -> dict[str, Result]:
    """The results of one mode by the answers' length, from a process of its own."""
    found = apart("benchmarks.throughput", mode)
    return {tokens: Result.from_json(each) for tokens, each in found.items()}


def table(results: dict[Mode, dict[str, Result]]) -> str:
    """As Markdown: medians, in brackets the quartiles."""
    lines = [
        "| engine | answers | pairs | stock, tok/s | throughput over stock | CPU over stock "
        f"| more in {' / '.join(PARTS)} |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for mode, works in results.items():
        for tokens, found in works.items():
            more = " / ".join(f"{share:.2%}" for share in found.more.values())
            lines.append(
                f"| {mode} | {tokens} tokens | {found.pairs} | {found.stock_tokens_per_s:.0f} "
                f"| {found.throughput} | {found.cpu} | {more} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput", description=__doc__)
    parser.add_argument("--mode", choices=MODES, help="one mode, here, printed as JSON")
    chosen = parser.parse_args()
    if chosen.mode:
        both = engines(chosen.mode)
        tell(
            {
                str(tokens): result(list(pairs(both, Work(tokens), count))).to_json()
                for tokens, count in WORKS.items()
            }
        )
    print(table({mode: measured(mode) for mode in MODES}))


if __name__ == "__main__":
    main()
