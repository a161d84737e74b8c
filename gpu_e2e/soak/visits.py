"""Who comes to the soak and what they ask: pure, everything follows from seed and number.

Answers have known lengths: the tiny model counts down to its end, or is held to `max_tokens`. So
every patient client's answer can be told from a cut one, and the greedy ones are asked again
afterwards, to compare them token for token.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from conformance.endpoint.driver import IDENTITY_FIELD
from conformance.endpoint.trace import Ask, Door
from gpu_e2e.engine.vocabulary import counting_prompt

Kind = Literal[
    "ends",  # by itself, at a known token
    "full",  # by max_tokens
    "several",  # n > 1, sampled
    "stopped",  # by a stop string
    "left-at-once",
    "left-early",
    "left-midway",
    "left-throttled",
    "bad",
]
WEIGHTS: Final[Mapping[Kind, int]] = {
    "ends": 36,
    "full": 20,
    "several": 6,
    "stopped": 8,
    "left-at-once": 5,
    "left-early": 6,
    "left-midway": 6,
    "left-throttled": 6,
    "bad": 7,
}
LEAVING: Final = frozenset(kind for kind in WEIGHTS if kind.startswith("left"))

#: Output tokens per second of the users who have a limit of their own.
RATES: Final = ("0.5", "2", "5", "100/7", "20", "40", "100", "1000")
NAMES_PER_RATE: Final = 40
DEFAULT_RATE: Final = 25
#: Nobody is unlimited where a default holds: these never get near their limit.
FREE_RATE: Final = 1_000_000
FREE_NAMES: Final = 8

LENGTHS: Final = (1, 2, 3, 5, 8, 13, 21, 34, 60, 100)
#: Seconds that a visit may last by its user's rate, so that the slow ones come to an end.
PATIENCE_S: Final = 5
MOST_TOKENS: Final = 200
MODEL_LEN: Final = 1024
# The short ones fit into a block of 128 tokens; the long ones hold several.
TEXTS: Final = (
    "Good morning",
    "What is the time",
    "Tell me of the sea",
    "The history of clocks, in short. " * 8,
    "A letter of several pages that nobody has answered yet. " * 11,
)

BAD_NAMES: Final[Sequence[Any]] = ("", [], ["a", 1], 5.5, "x" * 300, "a\u0007")
#: Each is the client's error: what it changes in the body of a completion.
BAD: Final[tuple[Mapping[str, Any], ...]] = (
    *({"vllm_xargs": {IDENTITY_FIELD: bad}} for bad in BAD_NAMES),
    {"max_tokens": -1},
    {"temperature": -1},
    {"top_p": 2},
    {"n": 0},
    {"prompt": "too long " * MODEL_LEN},
    {"model": "no such model"},
    {"use_beam_search": True, "n": 2},
    {"stop": 5},
)


@dataclass(frozen=True, slots=True)
class Visit:
    """One request.

    Args:
        kind: what becomes of it.
        ask: as the client sends it.
        tokens: of a whole answer; None where its client leaves or is refused.
        leave_after_s: the client is gone after so many seconds; None: it is not.
        bad: what is wrong with its body; empty: nothing.
    """

    kind: Kind
    ask: Ask
    tokens: int | None = None
    leave_after_s: float | None = None
    bad: Mapping[str, Any] | None = None

    @property
    def repeatable(self) -> bool:
        """Whether the same request gets the same tokens: greedy, and nothing ends it early."""
        return self.kind in ("ends", "full")


def names() -> dict[str, str]:
    """The users with a limit of their own, and it, in tokens per second."""
    mine = {f"soak-{r}-{n}".replace("/", "of"): r for r in RATES for n in range(NAMES_PER_RATE)}
    return mine | {f"soak-free-{n}": str(FREE_RATE) for n in range(FREE_NAMES)}


def session(seed: int, number: int, limits: Mapping[str, float]) -> Sequence[Visit]:
    """The visits of the session of this number, all at once and all by one user.

    `limits` are the named users' rates in tokens per second.
    """
    draw = random.Random(f"{seed}/{number}")
    user = _user(draw, number, tuple(limits))
    rate = limits.get(user or "", DEFAULT_RATE)
    count = draw.choice((1, 1, 1, 2, 3))
    most = max(2, min(MOST_TOKENS, int(rate * PATIENCE_S / count)))
    return [_visit(draw, user, most, f"{number}-{n}") for n in range(count)]


def _user(draw: random.Random, number: int, known: Sequence[str]) -> str | None:
    """A known name, one that is never seen again, or none."""
    kind = draw.random()
    if kind < 0.7:
        return draw.choice(known)
    return f"guest-{number}" if kind < 0.92 else None


def _visit(draw: random.Random, user: str | None, most: int, name: str) -> Visit:
    kind = draw.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    text = draw.choices(TEXTS, (4, 4, 4, 2, 1))[0]
    door: Door = draw.choice(("completions", "completions", "chat"))
    length = draw.choice([n for n in LENGTHS if n <= most])
    whole = {"ignore_eos": True}
    label = f"{kind} {name}"

    def ask(prompt: str, tokens: int, extra: Mapping[str, object], **more: Any) -> Ask:
        return Ask(user, prompt, tokens, label, extra=extra, **more)

    if kind == "ends":
        prompt = counting_prompt(text, length)
        return Visit(kind, ask(prompt, MOST_TOKENS, {}, door=door), length)
    if kind == "full":
        return Visit(kind, ask(text, length, whole, door=door), length)
    if kind == "several":
        n = draw.choice((2, 3))
        length = max(1, min(length, most // n))
        # No seed: vLLM 0.32.0 for the CPU dies of a seeded request in several chunks.
        sampled = ask(counting_prompt(text, length), MOST_TOKENS, {"n": n}, temperature=1.0)
        return Visit(kind, sampled, n * length)
    if kind == "stopped":
        # Numbers of two digits all the way, so that none begins like the one to stop at.
        length = min(length, 60)
        stop_at = draw.randint(10, 98 - length)
        prompt = counting_prompt(text, length + stop_at + 1)
        return Visit(kind, ask(prompt, MOST_TOKENS, {"stop": [f" {stop_at}"]}), length)
    if kind == "left-at-once":
        return Visit(kind, ask(text, 60, whole, cancel_after=0))
    if kind == "left-early":
        return Visit(kind, ask(text, 60, whole, door=door), leave_after_s=draw.uniform(0.0, 0.1))
    if kind == "left-midway":
        cut = draw.randint(1, max(1, min(most // 2, 40)))
        return Visit(kind, ask(text, MOST_TOKENS, whole, door=door, cancel_after=cut))
    if kind == "left-throttled":
        return Visit(kind, ask(text, MOST_TOKENS, whole), leave_after_s=draw.uniform(0.7, 2.0))
    return Visit(kind, ask(text, 5, {}), bad=draw.choice(BAD))
