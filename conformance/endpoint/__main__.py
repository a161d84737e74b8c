"""The command line of `check`: exit status 0 all rules hold, 1 one is broken, 2 not judged."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from fractions import Fraction

from conformance.endpoint.check import Target, check
from conformance.endpoint.driver import Driver
from conformance.endpoint.verdict import Verdict


def _limit(text: str) -> tuple[str, Fraction]:
    user, equals, rate = text.rpartition("=")
    try:
        value = Fraction(rate)
    except (ValueError, ZeroDivisionError):
        value = Fraction(0)
    if not equals or not user or value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not USER=TOKENS_PER_SECOND")
    return user, value


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the arguments, run the check, print a line per rule."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.endpoint",
        description="Hold a running OpenAI-compatible deployment to its users' output rates.",
    )
    parser.add_argument("--base-url", required=True, help="ends in /v1")
    parser.add_argument("--model", required=True, help="the served model's name")
    parser.add_argument("--limit", type=_limit, action="append", required=True, metavar="USER=R")
    parser.add_argument("--free", required=True, metavar="USER", help="a user without a limit")
    parser.add_argument("--api-key", default="none")
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=12.0, help="10 at least")
    parser.add_argument("--burst-ms", type=float, default=100.0)
    parser.add_argument("--step-ms", type=float, default=50.0, help="the longest expected step")
    parser.add_argument("--ratio", type=float, default=1.5, help="of FREE's medians, beside/alone")
    parser.add_argument("--same-tokens", action="store_true", help="the engine is deterministic")
    given = parser.parse_args(arguments)
    if given.seconds < 10 or given.streams < 1:
        parser.error("--seconds has to be 10 or more and --streams 1 or more")
    target = Target(
        limits=dict(given.limit),
        free=given.free,
        streams=given.streams,
        seconds=given.seconds,
        burst_ns=round(given.burst_ms * 1e6),
        step_ns=round(given.step_ms * 1e6),
        ratio=given.ratio,
        same_tokens=given.same_tokens,
    )
    try:
        found = asyncio.run(_check(given, target))
    except ConnectionError as error:
        print(f"conformance.endpoint: {error}", file=sys.stderr)
        return 2
    for verdict in found:
        print(verdict)
    return 0 if all(verdict.ok for verdict in found) else 1


async def _check(given: argparse.Namespace, target: Target) -> list[Verdict]:
    async with Driver(given.base_url, given.model, api_key=given.api_key) as driver:
        return await check(driver, target, print)


if __name__ == "__main__":
    sys.exit(main())
