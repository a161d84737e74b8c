"""Simulate users that always want more, and judge the instants at which they got their tokens."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from conformance.engine import ADAPTER, Limits, ManualClock, ScriptedEngine
from limiters import make_limiter

NS_PER_S = 1_000_000_000
SECONDS = 60
STREAMS = 4
BURST_NS = 100_000_000
RATES = ("1/2", "10", "20", "33", "100")
"""Of one user each, in tokens per second."""


@dataclass(frozen=True)
class Backend:
    title: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    reaches: bool = False
    """Whether it promises the rate that it is given."""


BACKENDS = (
    Backend("gcra", "gcra", reaches=True),
    Backend("token bucket", "token_bucket", reaches=True),
    Backend("rolling window, 0.1 s", "rolling_window"),
    Backend("rolling window, 1 s", "rolling_window", {"window_ns": NS_PER_S}),
)

# No step is longer than the burst or than it takes 4 streams to use up 100/s.
STEPS: dict[str, Callable[[random.Random], int]] = {
    "10 ms": lambda _: 10_000_000,
    "30 ms": lambda _: 30_000_000,
    "5 to 40 ms": lambda draw: draw.randrange(5_000_000, 40_000_000),
}


@dataclass(frozen=True)
class Pace:
    """One user's 60 s from its first token on. Durations are in ns."""

    rate: Fraction
    tokens: int
    gaps: Sequence[int]
    lateness: Sequence[int]
    """From the instant at which a token might have been taken to that at which it was."""

    @property
    def achieved(self) -> float:
        """Of the configured rate."""
        return float(self.tokens / (self.rate * SECONDS))

    @property
    def most(self) -> float:
        """The most that the bound allows, of the configured rate."""
        quota = self.rate * BURST_NS / NS_PER_S + 1
        return float(1 + quota / (self.rate * SECONDS))

    def gap(self, part: float) -> float:
        """A quantile of the gaps between its tokens, in units of 1/rate."""
        return sorted(self.gaps)[int(part * (len(self.gaps) - 1))] * float(self.rate) / NS_PER_S

    @property
    def latest_ms(self) -> float:
        return max(self.lateness) / 1e6


def run(backend: Backend, steps: str, depth: int = 1) -> dict[str, Pace]:
    """The paces of the users of all rates, by rate."""
    engine = ScriptedEngine(
        ADAPTER,
        Limits(
            rates={f"user-{rate}": rate for rate in RATES},
            limiter=backend.name,
            burst_ns=BURST_NS,
            options=backend.options,
        ),
        depth=depth,
        clock=ManualClock(seed=2),
        check_kv=False,
        keep_steps=1,
        max_num_seqs=STREAMS * len(RATES),
        max_num_batched_tokens=256,
        max_model_len=2048,
        block_size=16,
        num_blocks=128 * STREAMS * len(RATES),
    )
    for rate in RATES:
        for stream in range(STREAMS):
            engine.add(f"{rate}-{stream}", user=f"user-{rate}", max_tokens=2000)
    draw = random.Random(3)
    end_ns = engine.clock() + (SECONDS + 1) * NS_PER_S
    while engine.clock() < end_ns:
        engine.step(STEPS[steps](draw))
    return {
        rate: _judge(backend, rate, engine.history.dispatches(f"user-{rate}")) for rate in RATES
    }


def _judge(backend: Backend, rate: str, instants: Sequence[int]) -> Pace:
    end_ns = instants[0] + SECONDS * NS_PER_S
    within = [at for at in instants if at <= end_ns]
    # A limiter of its own tells when each token might have been taken.
    limiter = make_limiter(backend.name, default_rate=rate, burst_ns=BURST_NS, **backend.options)
    lateness, before = [], within[0]
    for at in within:
        lateness.append(at - limiter.ready_at_ns("user", before))
        assert limiter.try_take("user", at), f"{backend.title}: a token beyond the quota"
        before = at
    gaps = [b - a for a, b in itertools.pairwise(within)]
    return Pace(Fraction(rate), len(within), gaps, lateness)
