"""Hold a running deployment to the rules of level 3: `python -m conformance.endpoint --help`.

Nothing of the engine's inside is looked at: requests go in, tokens come out. The check needs the
limits that the deployment was started with, and one user without a limit (or with one that it
does not reach) for the comparison. It takes about three times `seconds`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from conformance.endpoint import verdicts
from conformance.endpoint.driver import Driver
from conformance.endpoint.promise import DEFAULT_BURST_NS, SECOND_NS
from conformance.endpoint.trace import Ask, Stream
from conformance.endpoint.verdict import Verdict, ms

# An endpoint that stops at an end of sequence could not be measured for long enough.
_GO_ON = {"ignore_eos": True}
_PROMPT = "Write a long story about a clock maker who never hurried, part {part}."
_CANCEL_AFTER = 3


@dataclass(frozen=True, slots=True)
class Target:
    """What to check, and what was promised.

    Args:
        limits: tokens per second by user.
        free: a user without a limit.
        streams: how many streams each limited user opens.
        seconds: how long each limited user is measured, 10 at least.
        burst_ns: the deployment's burst.
        step_ns: the longest engine step that is expected there, that of a prompt included.
        ratio: how much slower than alone the free user may be, by the median.
        same_tokens: the engine gives the same tokens whatever the batch.
    """

    limits: Mapping[str, Fraction]
    free: str
    streams: int = 4
    seconds: float = 12.0
    burst_ns: int = DEFAULT_BURST_NS
    step_ns: int = 50_000_000
    ratio: float = 1.5
    same_tokens: bool = False


async def check(driver: Driver, target: Target, say: Callable[[str], None]) -> list[Verdict]:
    """Run the whole check and return a verdict per rule and user.

    Raises ConnectionError if not even the first request is answered.
    """
    asks = [ask for user in target.limits for ask in _asks(target, user)]
    solo = Ask(target.free, _PROMPT.format(part=0), 200, name="solo", extra=_GO_ON)
    first = await driver.one(replace(solo, max_tokens=4))
    if first.error is not None:
        raise ConnectionError(f"no answer to judge from {driver.base_url}: {first.error}")
    say(f"{target.free} alone")
    alone = [await driver.one(solo) for _ in range(3)]
    say(f"{', '.join(target.limits)}, {target.streams} streams each, beside {target.free}")
    tasks = [driver.start(ask)[1] for ask in asks]
    beside = [await driver.one(solo)]
    while not all(task.done() for task in tasks):
        beside.append(await driver.one(solo))
    limited = list(await asyncio.gather(*tasks))
    say(f"the same requests for {target.free}, and cancellations")
    free = await driver.run(replace(ask, user=target.free) for ask in asks)
    gone, again = [], []
    for user in target.limits:
        own = [ask for ask in asks if ask.user == user]
        gone += await driver.run(replace(ask, cancel_after=_CANCEL_AFTER) for ask in own)
        again += await driver.run(replace(a, max_tokens=_full_quota(target, user)) for a in own)
    say(f"J, the largest stall of this client: {ms(driver.stall_ns)} ms")
    return [
        *_by_user(target, limited, gone, again, driver.stall_ns),
        verdicts.completeness([*limited, *free, *alone, *beside, *again]),
        *([verdicts.identical(limited, free)] if target.same_tokens else []),
        verdicts.isolation(target.free, alone, beside, most=target.ratio, stall_ns=driver.stall_ns),
    ]


def _asks(target: Target, user: str) -> list[Ask]:
    """The user's streams, long enough together to be measured for `seconds`."""
    tokens = math.ceil(target.limits[user] * Fraction(target.seconds + 1) / target.streams) + 1
    prompts = [_PROMPT.format(part=part) for part in range(1, target.streams + 1)]
    return [
        Ask(user, prompt, max(tokens, _CANCEL_AFTER + 2), name=f"{user}-{i}", extra=_GO_ON)
        for i, prompt in enumerate(prompts)
    ]


def _full_quota(target: Target, user: str) -> int:
    """More tokens than a user has who was forgotten, and so has a full quota too early."""
    return int(target.burst_ns * target.limits[user] / SECOND_NS) + 2


def _by_user(
    target: Target,
    limited: list[Stream],
    gone: list[Stream],
    again: list[Stream],
    stall_ns: int,
) -> list[Verdict]:
    found = []
    for user, rate in target.limits.items():
        own, left, back = ([s for s in part if s.user == user] for part in (limited, gone, again))
        quota = {"burst_ns": target.burst_ns, "stall_ns": stall_ns}
        late = {"step_ns": target.step_ns, "stall_ns": stall_ns}
        found += [
            verdicts.pace(user, own, rate, **quota, min_seconds=min(10.0, target.seconds)),
            verdicts.windows(user, own, rate, **quota),
            verdicts.sharing(user, own, rate=rate, stall_ns=stall_ns),
            verdicts.evenness(user, own, rate, **late),
            verdicts.recovery(user, left, back, rate, burst_ns=target.burst_ns, **late),
        ]
    return found
