"""Whatever comes: a small engine under random users, arrivals, aborts, pressure and clocks.

After every step the books, the bounds and the places are looked at; at the end everything must
have ended, whole, and given back what it held.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from conformance.engine import ManualClock, RequestLog, ScriptedEngine
from conformance.level2.bench import MS, Bench
from conformance.level2.verdicts import check_ended, check_whole, check_windows, drain

__all__ = ["machine_of"]

USERS = ("a", "b", "c")
RATES = st.sampled_from([3, 10, "100/3", 50, 1000, None])
LENGTHS = st.sampled_from([1, 2, 3, 4, 5, 8, 9, 12, 17, 20])

SMALL = st.fixed_dictionaries(
    {
        "max_num_seqs": st.sampled_from([2, 4, 8]),
        "cap": st.sampled_from([1, 2, 100]),
        "policy": st.sampled_from(["fcfs", "priority"]),
        "num_blocks": st.sampled_from([12, 20, 60]),
        "budget": st.sampled_from([10, 32, 64]),
        "prefix_caching": st.booleans(),
        "chunked_prefill": st.sampled_from([True, True, True, False]),
    }
)
"""Too little of everything."""

ROOMY = st.fixed_dictionaries(
    {
        "max_num_seqs": st.just(24),
        "cap": st.just(100),
        "policy": st.sampled_from(["fcfs", "priority"]),
        "num_blocks": st.just(400),
        "budget": st.just(512),
        "prefix_caching": st.booleans(),
        "chunked_prefill": st.booleans(),
    }
)
"""Room for everybody: then who has quota is served in the very step."""


class EngineMachine(RuleBasedStateMachine):
    """Needs `bench` as a class attribute, see `machine_of`."""

    bench: Bench

    def __init__(self) -> None:
        super().__init__()
        self.engine: ScriptedEngine | None = None
        self.broken = False

    @initialize(
        config=st.one_of(SMALL, ROOMY),
        rates=st.fixed_dictionaries(dict.fromkeys(USERS, RATES)),
        burst_ms=st.sampled_from([0, 100, 100, 400]),
        clock_seed=st.integers(0, 1000),
        jumps=st.booleans(),
    )
    def start(
        self,
        config: dict[str, Any],
        rates: dict[str, Any],
        burst_ms: int,
        clock_seed: int,
        jumps: bool,
    ) -> None:
        config = dict(config)
        cap, budget = config.pop("cap"), config.pop("budget")
        self.room = config["num_blocks"] == 400
        length = 32
        if not config["chunked_prefill"]:
            budget = max(budget, length)
        self.cap = min(cap, config["max_num_seqs"])
        self.rates = {user: rate for user, rate in rates.items() if rate is not None}
        self.clock = ManualClock(clock_seed)
        self.engine = self.bench.engine(
            rates=self.rates,
            burst_ns=burst_ms * MS,
            clock=self.clock,
            max_num_active_seqs=self.cap,
            max_num_batched_tokens=max(budget, config["max_num_seqs"]),
            max_model_len=length,
            **config,
        )
        self.oracle = self.bench.oracle(self.engine)
        # Time as the limiter has to see it: the clock's, but never back.
        self.now_ns = 0
        self.tokens: dict[str, list[int]] = {user: [] for user in USERS}
        self.paused = False
        self.exact, self.jumps = True, jumps
        note(f"{self.engine.clock}")

    # What may happen

    @rule(
        user=st.sampled_from(USERS),
        prompt=LENGTHS,
        shared=st.booleans(),
        max_tokens=st.sampled_from([1, 2, 5, 11]),
        priority=st.integers(0, 2),
        end=st.sampled_from([None, None, ("eos", 0), ("eos", 3), ("stop", 1)]),
        count=st.sampled_from([1, 2, 5]),
    )
    def arrive(
        self,
        user: str,
        prompt: int,
        shared: bool,
        max_tokens: int,
        priority: int,
        end: tuple[str, int] | None,
        count: int,
    ) -> None:
        how = {} if end is None else {"eos_at": end[1]}
        if end is not None and end[0] == "stop":
            how = {"stop_at": (end[1], 9)}
        for _ in range(count):
            self.engine.add(
                f"{user}{len(self.engine.requests)}",
                user=user,
                prompt=list(range(20, 20 + prompt)) if shared else prompt,
                max_tokens=max_tokens,
                priority=priority,
                **how,
            )

    def _live(self) -> list[RequestLog]:
        return [log for log in self.engine.requests.values() if not log.finished]

    @precondition(lambda self: self.engine is not None and self._live())
    @rule(which=st.integers(0, 1000), in_flight=st.booleans())
    def abort(self, which: int, in_flight: bool) -> None:
        live = self._live()
        self.engine.abort(live[which % len(live)].id, in_flight=in_flight)

    @rule(lengths_ms=st.lists(st.sampled_from([0, 1, 7, 10, 30, 120, 900]), min_size=1, max_size=6))
    def go_on(self, lengths_ms: list[int]) -> None:
        for length in lengths_ms:
            self._step(length * MS)

    @precondition(lambda self: self.engine is not None and self.jumps)
    @rule(jump_ms=st.sampled_from([-3_600_000, -700, -1, 400, 3_600_000]))
    def jump(self, jump_ms: int) -> None:
        self.clock.jump(jump_ms * MS)
        self.now_ns += max(0, jump_ms) * MS
        # How far a clock went back that nobody looked at meanwhile, a scheduler cannot know.
        self.exact = self.exact and jump_ms > 0
        self._step(10 * MS)

    @rule()
    def reset_prefix_cache(self) -> None:
        self.engine.reset_prefix_cache()

    @rule(new_only=st.booleans(), steps=st.integers(1, 4))
    def pause(self, new_only: bool, steps: int) -> None:
        self.engine.pause(new_only=new_only)
        self.paused = True
        for _ in range(steps):
            self._step(50 * MS)
        self.engine.resume()
        self.paused = False

    # What must hold

    def _step(self, dt_ns: int) -> None:
        engine, bench = self.engine, self.bench
        able = self._able()
        try:
            step = engine.step(dt_ns)
        except AssertionError:
            self.broken = True
            raise
        served = Counter(engine.requests[name].user for name in step.sampled)
        for user in USERS:
            due = 0
            if able is not None and able[user]:
                due = min(self.oracle.available(user, self.now_ns), able[user])
            if user in self.rates:
                self.oracle.try_take_many(user, served[user], self.now_ns)
                self.tokens[user] += [self.now_ns] * served[user]
            if served[user] < due:
                self.broken = True
                bench.broken(
                    "S3-LOST-2",
                    user=user,
                    at=f"step {step.index}",
                    seen=f"{served[user]} tokens",
                    promised=f"{due}, with work for {able[user]} and room for all",
                )
        self.now_ns += dt_ns

    def _able(self) -> Counter[str | None] | None:
        """Requests that could have a token now, by user; None if there is not room for all."""
        engine = self.engine
        live = self._live()
        seats = engine.vllm_config.scheduler_config.max_num_seqs
        waiting = sum(len(log.prompt) + len(log.tokens) for log in live)
        if (
            not (self.room and self.exact)
            or self.paused
            or len(live) > seats - seats // 8
            or waiting > 512
        ):
            return None
        able: Counter[str | None] = Counter()
        for log in live:
            flying = len(log.dispatch_ns) - log.lost.total() - len(log.tokens)
            done = len(log.tokens) + flying
            able[log.user] += done < log.max_tokens and done + len(log.prompt) < 32
        return able

    @invariant()
    def books_and_places(self) -> None:
        if self.engine is None or not self.engine.history.steps or self.broken:
            return
        try:
            self.bench.check_ledger(self.engine, "S1-LEDGER-2")
            step = self.engine.history.steps[-1]
            self.bench.check(
                step.batch_size <= self.cap,
                "S4-CAP-2",
                at=f"step {step.index}",
                seen=f"{step.batch_size} requests in the step",
                promised=f"at most {self.cap}",
            )
        except AssertionError:
            self.broken = True
            raise

    def teardown(self) -> None:
        engine, bench = self.engine, self.bench
        if engine is None or self.broken:
            return
        engine.step_ns = 100 * MS
        slowest = min((bench.rate(engine, user) for user in self.rates), default=Fraction(1000))
        # Tokens still to come, each in a step of its own, and as long as the slowest user needs.
        owed = sum(log.max_tokens + len(log.prompt) for log in self._live())
        for _ in range(50 + 4 * owed + int(10 * owed / slowest)):
            if not engine.busy:
                break
            self._step(100 * MS)
        drain(bench, engine, 1, "S3-LOST-2")
        check_whole(bench, engine, rule="S3-WHOLE-2")
        check_ended(bench, engine, "S3-LEAK-2")
        burst_ns = engine.limits.burst_ns  # type: ignore[attr-defined]
        for user in self.rates:
            rate = bench.rate(engine, user)
            assert rate is not None

            def bound(width: int, rate: Fraction = rate) -> int:
                return bench.backend.bound(width, rate, burst_ns)

            check_windows(bench, user, self.tokens[user], bound, 0, "S2-BOUND-2")


def machine_of(bench: Bench) -> type[EngineMachine]:
    """The machine for one cell of the matrix."""
    return type("EngineMachine", (EngineMachine,), {"bench": bench})
