"""Who asks for what in the main job: three users at once, and one of them alone before.

    alice   20 tok/s   four streams, each ending by itself after exactly 60 tokens (or one, of 240)
    bob    100 tok/s   one stream of 1,200 tokens
    carol  unlimited   the same five requests one after another, as often as there is time

Carol's answers are what alice's and bob's have to equal, token for token.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction

from conformance.endpoint.driver import Driver
from conformance.endpoint.trace import Ask, Stream
from gpu_e2e.engine.vocabulary import counting_prompt

LIMITS = {"alice": Fraction(20), "bob": Fraction(100)}
FREE = "carol"
ALICE_STREAMS = 4
ALICE_TOKENS = 240  # of all her streams together, at 20 tok/s, and
BOB_TOKENS = 1_200  # 1,200 at 100 tok/s: 12 s each
ALONE_TOKENS = 400
SETTLE_S = 0.3

# Long on purpose: at one token a byte, a prompt that was charged would cost alice most of a minute.
_PROSE = (
    "In a quiet town by the sea there was a clock maker who never hurried. He said that a minute "
    "is a minute whoever owns it, and that a good clock gives each of them away exactly once, "
    "never two together and never one too late. People came from far away to hear it strike. "
)


@dataclass(slots=True)
class Run:
    """What one run did, filled in while it goes on. Instants are monotonic ns."""

    alice_streams: int = ALICE_STREAMS
    streams: list[Stream] = field(default_factory=list)
    alone: tuple[int, int] = (0, 0)
    together: tuple[int, int] = (0, 0)
    stall_ns: int = 0

    def of(self, user: str) -> list[Stream]:
        """The user's streams, in the order of their requests."""
        return [s for s in self.streams if s.user == user]


def limits_flag() -> list[str]:
    """The server's flag for the limits."""
    rates = {user: int(rate) for user, rate in LIMITS.items()}
    return ["--user-output-tokens-per-second", json.dumps(rates)]


def limited_asks(streams: int = ALICE_STREAMS, *, counts_itself: bool = True) -> list[Ask]:
    """Alice's and bob's requests.

    Only the project's model ends by itself at a known place (`counts_itself`); any other is told
    to go on to `max_tokens`.
    """
    asks = []
    tokens = ALICE_TOKENS // streams
    for index in range(streams):
        text = f"Story {index}. {_PROSE}"
        name = f"alice-{index}"
        if counts_itself:
            prompt = counting_prompt(text, tokens)
            asks.append(Ask("alice", prompt, max_tokens=2 * tokens, name=name))
        else:
            extra = {"ignore_eos": True}
            asks.append(Ask("alice", text, max_tokens=tokens, name=name, extra=extra))
    extra = {} if counts_itself else {"ignore_eos": True}
    asks.append(Ask("bob", _PROSE, max_tokens=BOB_TOKENS, name="bob-0", extra=extra))
    return asks


def expected_tokens(streams: int = ALICE_STREAMS) -> dict[str, int]:
    """How many tokens each limited answer must have, by name."""
    return {f"alice-{i}": ALICE_TOKENS // streams for i in range(streams)} | {"bob-0": BOB_TOKENS}


async def drive(
    driver: Driver, run: Run, say: Callable[[str], None], *, counts_itself: bool = True
) -> None:
    """Do the whole run. `run` shows it while it goes on."""
    asks = limited_asks(run.alice_streams, counts_itself=counts_itself)
    # The first request of a server pays for what is set up lazily: not to be measured.
    await driver.one(replace(asks[0], user=FREE, name="warm-up", max_tokens=8))
    say(f"{FREE} alone")
    start = driver.clock()
    await _start(driver, run, replace(asks[-1], user=FREE, name="alone", max_tokens=ALONE_TOKENS))
    run.alone = (start, driver.clock())
    say("all together")
    start = driver.clock()
    limited = [_start(driver, run, ask) for ask in asks]
    company = asyncio.create_task(_keep_company(driver, run, asks, limited))
    await asyncio.gather(*limited)
    run.together = (start, driver.clock())
    await company
    run.stall_ns = driver.stall_ns
    await settle(driver)


async def settle(driver: Driver) -> None:
    """Have the engine write its record up to here.

    It writes at the first event that comes 0.2 s after it last did, and a server that is stopped
    takes what is unwritten with it.
    """
    await asyncio.sleep(SETTLE_S)
    await driver.one(Ask(FREE, "Bye", 2, name="settle"))


async def _keep_company(
    driver: Driver, run: Run, asks: list[Ask], limited: list[asyncio.Task[Stream]]
) -> None:
    """Carol's part: each request once whatever happens, then again while the others run."""
    again = 0
    while again == 0 or not all(task.done() for task in limited):
        for ask in asks:
            if again and all(task.done() for task in limited):
                return
            await _start(driver, run, replace(ask, user=FREE, name=f"{FREE}-{ask.name}-{again}"))
        again += 1


def _start(driver: Driver, run: Run, ask: Ask) -> asyncio.Task[Stream]:
    stream, task = driver.start(ask)
    run.streams.append(stream)
    return task
