"""Targets against what was measured, as Markdown: `python -m benchmarks.table [RELEASE]`.

It reads what `python -m benchmarks.history record` wrote, and measures nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from benchmarks.history import files

Figures = dict[str, Any]
MODES = ("sync", "async")


class Row(NamedTuple):
    what: str
    target: str
    measured: str
    met: bool


def _verbs(found: Figures) -> Iterator[Row]:
    for kind, most in (("allowed", 1.3), ("denied", 1.3), ("10,000 users", 1.4)):
        ratio = found["over the floor"][kind]
        took = found["ns"][kind]["gcra"]
        yield Row(
            f"GCRA `try_take`, {kind}, over a bare dict and ints",
            f"≤ {most} ×",
            f"{ratio:.2f} × ({took:.0f} ns)",
            ratio <= most,
        )
    best = min((ratio, peer) for peer, ratio in found["peers over gcra"].items() if "gcra" in peer)
    yield Row(
        "GCRA `try_take`, faster than any GCRA of the peers",
        "≥ 15 ×",
        f"{best[0]:.0f} × ({best[1]})",
        best[0] >= 15,
    )


def _memory(found: Figures) -> Iterator[Row]:
    sizes = {n: size for n, size in found["gcra"].items() if n.isdigit()}
    most = max(sizes.values())
    shown = ", ".join(f"{size:.0f} at {int(n):,}" for n, size in sizes.items())
    yield Row("memory of a user, GCRA", "≤ 110 bytes", shown, most <= 110)


def _counts(found: Figures) -> Iterator[Row]:
    steps = found["steps"]

    def over_stock(mode: str, scene: str) -> float:
        return float(steps[f"{mode}, {scene}: adapter"] / steps[f"{mode}, {scene}: stock"])

    for users in (1, 16, 256):
        ratios = [over_stock(mode, f"256 resident of {users} users") for mode in MODES]
        yield Row(
            f"limits not reached, 256 resident of {users} user{'s' * (users > 1)}, opcodes",
            "≤ +3 %",
            _both(ratios, lambda ratio: f"{ratio - 1:+.1%}"),
            max(ratios) <= 1.03,
        )
    ratios = [over_stock(mode, "1024 resident, 95 % throttled") for mode in MODES]
    yield Row(
        "95 % of 1,024 throttled, opcodes over stock with only the eligible",
        "≤ 1.3 ×",
        _both(ratios, "{:.2f} ×".format),
        max(ratios) <= 1.3,
    )
    few, many = (steps[f"sync, {n} resident, 51 of them eligible: adapter"] for n in (1024, 10240))
    yield Row(
        "10,240 residents instead of 1,024, opcodes",
        "≤ 1.1 ×",
        f"{many / few:.2f} ×",
        many <= 1.1 * few,
    )
    ratios = [
        steps[f"{mode}, 10000 waiting: adapter"] / steps[f"{mode}, 10 waiting: adapter"]
        for mode in MODES
    ]
    yield Row(
        "10,000 waiting of a throttled user instead of 10, opcodes",
        "≤ 1.1 ×",
        _both(ratios, "{:.2f} ×".format),
        max(ratios) <= 1.1,
    )


def _cpu(found: Figures) -> Iterator[Row]:
    for key, what in (
        ("residents", "10,240 residents instead of 1,024, thread CPU"),
        ("waiting", "10,000 waiting of a throttled user instead of 10, thread CPU"),
    ):
        yield Row(what, "≤ 1.5 ×", f"{found[key]:.2f} ×", found[key] <= 1.5)


def _throughput(found: Figures) -> Iterator[Row]:
    for tokens in found[MODES[0]]:
        shown, met = [], True
        for mode in MODES:
            each = found[mode][tokens]
            ratio, more = each["throughput"], sum(each["more"].values())
            shown.append(
                f"{mode} {ratio['median']:.3f} ({ratio['lower']:.3f} to {ratio['upper']:.3f}), "
                f"{more:.1%} more in the scheduler"
            )
            met &= ratio["median"] >= 0.99
        yield Row(
            f"engine throughput, limits not reached, answers of {tokens} tokens, in pairs",
            "≥ 0.99 of stock",
            "; ".join(shown),
            met,
        )


BESIDE = {
    "parked": "32 parked users",
    **{f"flood {rate}": f"a flood capped to {rate} tok/s" for rate in (5, 20, 50)},
}


def _isolation(found: Figures) -> Iterator[Row]:
    for name, what in BESIDE.items():
        shown, ratios = [], []
        for key, title in (("first", "first token"), ("gap", "gap")):
            each = {mode: found[mode][name][key]["ratio"] for mode in MODES}
            shown.append(f"{title} " + ", ".join(f"{m} {ratio:.3f} ×" for m, ratio in each.items()))
            ratios += each.values()
        yield Row(
            f"interactive user's first token and gap at p50 beside {what}, over alone, the engine "
            "alone in its process",
            "≤ 1.05 ×",
            "; ".join(shown),
            max(ratios) <= 1.05,
        )


def _idle(found: Figures) -> Iterator[Row]:
    shown, met = [], True
    for mode in MODES:
        each = found[mode]
        empty = f"{each['engine, empty']:.1%} / {each['worker, empty']:.1%}"
        shown.append(
            f"{mode} {each['engine']:.1%} / {each['worker']:.1%} (with nobody there {empty}), "
            f"{each['loops per s']} loops"
        )
        met &= max(each["engine"], each["worker"]) <= 0.02 and each["loops per s"] <= 25
    yield Row(
        "all throttled: CPU of engine / worker, loops a second",
        "≤ 2 % / ≤ 2 %, ≤ 25",
        "; ".join(shown),
        met,
    )


def _pacing(found: Figures) -> Iterator[Row]:
    for backend in ("gcra", "token bucket"):
        paces = [pace for steps in found[backend].values() for pace in steps.values()]
        least = min(pace["achieved"] for pace in paces)
        room = min(pace["most"] - pace["achieved"] for pace in paces)
        yield Row(
            f"rate achieved / configured over 60 s, {backend}",
            "0.999 to 1 + (0.1 × rate + 1) / (60 × rate)",
            f"least {least:.4f}, {'never' if room >= 0 else 'sometimes'} above",
            least >= 0.999 and room >= 0,
        )


SECTIONS: dict[str, Callable[[Figures], Iterator[Row]]] = {
    "verbs": _verbs,
    "memory": _memory,
    "counts": _counts,
    "cpu": _cpu,
    "throughput": _throughput,
    "isolation": _isolation,
    "idle": _idle,
    "pacing": _pacing,
}


def _both(values: list[float], show: Callable[[float], str]) -> str:
    shown = [show(value) for value in values]
    return shown[0] if len(set(shown)) == 1 else ", async ".join(shown)


def rows(figures: Figures) -> Iterator[Row]:
    """A row a target, of the parts that were measured."""
    for part, section in SECTIONS.items():
        if part in figures:
            yield from section(figures[part])


def table(figures: Figures) -> str:
    """The rows as Markdown. A part that was not measured is named and has none."""
    lines = ["| what | target | measured | met |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {row.what} | {row.target} | {row.measured} | {_yes(row.met)} |" for row in rows(figures)
    ]
    missing = [part for part in SECTIONS if part not in figures]
    if missing:
        lines += ["", f"Not measured: {', '.join(missing)}."]
    return "\n".join(lines)


def _yes(met: bool) -> str:
    return "yes" if met else "**no**"


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else files.release()
    figures = files.read(name)
    if not figures:
        sys.exit(f"nothing is recorded of {name}: python -m benchmarks.history record")
    print(table(figures))


if __name__ == "__main__":
    main()
