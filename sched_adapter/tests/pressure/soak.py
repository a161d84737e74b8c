"""A soak: people come and go for hundreds of thousands of steps, and nothing of them stays.

`python -m sched_adapter.tests.pressure.soak --steps 300000` runs the real scheduler under a manual
clock with everything that happens to an engine: aborts, too few blocks, changed rates, pauses, bad
names, a clock that jumps. Everything is judged as it goes, and at the end of each round, when the
house is empty.
"""

from __future__ import annotations

import argparse
import gc
import random
import resource
import sys
import time
from collections import Counter
from fractions import Fraction

from conformance.contract import Contract
from conformance.contracts import BUILT_IN, even_bound
from conformance.engine import RequestLog, StepLog
from conformance.level2.verdicts import tightest
from sched_adapter import identity
from sched_adapter.tests.pressure.house import BURST_NS, MS, SECOND, house

DEFAULT_RATE = 25
RATES = (2, 7, 10, 30, "100/3", 100)
BAD_NAMES = (5, 5.5, True, [], ["a", 1], "", "x" * 300, "tab\there", {"a": 1})
LENGTHS_MS = (1, 2, 5, 5, 10, 10, 20, 60, 150)

#: A user is judged and forgotten this long after its last request, in ns of the manual clock.
GONE_NS = 3 * SECOND


class Soak:
    """One engine and what happens to it; everything follows from the seed."""

    def __init__(self, depth: int, backend: Contract, seed: int) -> None:
        self.draw = random.Random(seed)
        self.backend = backend
        self.policy = ("fcfs", "priority")[seed % 2]
        self.engine = house(
            depth,
            backend,
            default_rate=DEFAULT_RATE,
            policy=self.policy,
            max_num_seqs=24,
            max_num_active_seqs=8,
            max_num_batched_tokens=48,
            max_model_len=64,
            num_blocks=70,
            # Not with PRIORITY: stock 0.32.0 evicts requests that the step has scheduled, and
            # leaves their blocks in the prefix cache, not computed (vllm-project/vllm#43569).
            prefix_caching=self.policy == "fcfs" and seed // 2 % 3 > 0,
            lora_slots=2,
            keep_steps=8,
            keep_instants=False,
            observe=self._see,
        )
        self.scheduler = self.engine.scheduler
        self.serial = 0
        self.last_seen: dict[str | None, int] = {}
        self.instants: dict[str | None, list[int]] = {}
        self.rates: dict[str | None, list[tuple[int, Fraction]]] = {}
        self.dispatched = 0
        self.objects: list[int] = []
        self.figures: Counter[str] = Counter()

    # What happens

    def churn(self, steps: int) -> None:
        """So many steps of a busy house."""
        for _ in range(steps):
            self._events()
            self.engine.step(self.draw.choice(LENGTHS_MS) * MS)
            if self.figures["steps"] % 64 == 0:
                self._collect()

    def _events(self) -> None:
        draw, engine = self.draw, self.engine
        waiting = sum(self.scheduler.get_request_counts())
        if waiting < 60 and draw.random() < 0.25:
            self._arrive()
        if draw.random() < 0.03:
            live = [log.id for log in engine.requests.values() if not log.finished]
            if live:
                self.figures["aborts"] += 1
                engine.abort(draw.choice(live), in_flight=draw.random() < 0.5)
        chance = draw.random()
        if chance < 0.01:
            self._change_a_rate()
        elif chance < 0.014:
            self.figures["pauses"] += 1
            engine.pause(new_only=draw.random() < 0.5)
            for _ in range(draw.randrange(1, 4)):
                engine.step(draw.choice([1, 50, 2000]) * MS)
            engine.resume()
        elif chance < 0.016:
            engine.reset_prefix_cache()
        elif chance < 0.018:
            self.figures["clock jumps"] += 1
            engine.clock.jump(draw.choice([-3600, -1, 1, 3600]) * SECOND)
        elif chance < 0.020:
            self.scheduler.finish_requests(["never-heard-of"], _aborted())

    def _arrive(self) -> None:
        """A guest with some requests: new, back after a while, a regular, or without a name."""
        draw = self.draw
        self.serial += 1
        kind = draw.random()
        user: object = f"guest{self.serial - draw.choice([0, 0, 0, 1, 3, 9])}"
        if kind < 0.15:
            user = f"regular{draw.randrange(8)}"
        elif kind < 0.18:
            user = None
        elif kind < 0.21:
            user = draw.choice(BAD_NAMES)
            self.figures["bad names"] += 1
        for i in range(draw.choice([1, 1, 2, 4, 12])):
            end = draw.choice([None, None, None, 0, 3])
            self.engine.add(
                f"{self.serial}-{i}",
                user=user,
                prompt=draw.choice([1, 2, 4, 5, 9, 17, 30, 40]),
                max_tokens=draw.choice([1, 2, 5, 11, 20]),
                priority=draw.randrange(3) if self.policy == "priority" else 0,
                eos_at=end,
                grammar=4 if end is None and draw.random() < 0.1 else None,
                lora=draw.choice([0, 0, 0, 1, 2, 3]),
            )
            self.figures["requests"] += 1

    def _change_a_rate(self) -> None:
        users = [user for user in self.instants if user is not None]
        if users:
            user, now = self.draw.choice(users), self._now()
            rate = self.draw.choice(RATES)
            self.scheduler.set_rate(user, rate)
            self.rates.setdefault(user, []).append((now, self.scheduler.limiter.rate_of(user)))
            self.figures["rate changes"] += 1

    def _now(self) -> int:
        """Time as the limiter has to see it."""
        return int(self.scheduler._clock.peek())

    # What must hold

    def _see(self, step: StepLog) -> None:
        now = self.scheduler.books.now_ns  # the instant the limiter saw, whatever the clock does
        self.figures["steps"] += 1
        self.figures["preemptions"] += len(step.preempted)
        self.dispatched += len(step.sampled)
        for name in step.sampled:
            user = _charged(self.engine.requests[name])
            self.instants.setdefault(user, []).append(now)
            self.last_seen[user] = now
        assert len(step.scheduled) <= 8, "the active cap"

    def _collect(self) -> None:
        """Judge requests that have ended, and now and then the books and the users gone."""
        engine = self.engine
        assert engine.ledger().net == self.dispatched, "the ledger is exact"  # type: ignore[union-attr]
        done = [log for log in engine.requests.values() if log.finished]
        flying = {name for step in engine._loop.queue for name in step.batch.samples}
        for log in done:
            if log.id not in flying:
                self._judge(log)
                del engine.requests[log.id]
                engine.runner.scripts.pop(log.id, None)
        engine.history.tallies.clear()  # counted here
        live = {_charged(log) for log in engine.requests.values()}
        now = self._now()
        for user in [u for u, at in self.last_seen.items() if now - at > GONE_NS]:
            if user not in live:
                self._say_goodbye(user)

    def _judge(self, log: RequestLog) -> None:
        self.figures[f"ended by {log.finish_reason}"] += 1
        whole = self.engine.expected(log.id)
        if log.finish_reason != "abort":
            assert len(log.tokens) == len(whole), f"{log.id} is not whole"
        assert log.tokens == whole[: len(log.tokens)], f"{log.id} has other tokens"
        self.figures["tokens"] += len(log.tokens)

    def _say_goodbye(self, user: str | None) -> None:
        """All windows of a user that is gone: the highest rate's bound, after a change its own."""
        del self.last_seen[user]
        at = self.instants.pop(user)
        changes = [(-(2**62), Fraction(DEFAULT_RATE)), *self.rates.pop(user, [])]
        self._check_windows(user, at, max(rate for _, rate in changes))
        since, rate = changes[-1]
        self._check_windows(user, [instant for instant in at if instant >= since], rate)
        self.figures["users"] += 1
        if len(changes) > 1:
            self.scheduler.set_rate(user, None)

    def _check_windows(self, user: str | None, at: list[int], rate: Fraction) -> None:
        for count, (width, _) in enumerate(tightest(at), start=1):
            most = max(bound(width, rate, BURST_NS) for bound in (self.backend.bound, even_bound))
            assert count <= most, f"{user}: {count} tokens in {width} ns at {rate}/s, due {most}"

    def empty(self) -> None:
        """Let everybody finish; then nothing of them may be left anywhere."""
        engine, scheduler = self.engine, self.scheduler
        engine.drain(200_000, 100 * MS)
        engine.clock.advance(3600 * SECOND)
        engine.add(f"last-{self.serial}", user="last", prompt=1, max_tokens=1)
        self.serial += 1
        engine.drain(10)
        engine.clock.advance(3600 * SECOND)
        self._collect()
        engine.clock.advance(3600 * SECOND)  # who has the default rate again has its quota too
        scheduler.limiter.cleanup_idle_users(self._now())
        assert not engine.leaks(), engine.leaks()
        assert not engine.requests, f"lost: {list(engine.requests)[:5]}"
        turns, ledger = scheduler.turns, scheduler.ledger
        left = {
            "users": len(turns.users),
            "rings": len(turns.rings),
            "limited awake": len(turns.limited_awake),
            "asleep": turns.asleep,
            "alarms": len(turns._alarms),
            "residents": len(scheduler.residents),
            "prefilling": len(scheduler.residents.prefilling),
            "owed": len(scheduler.residents.owed),
            "adapters": scheduler.residents.num_adapters,
            "accounts": len(ledger.accounts),
            "leaving": len(ledger._leaving),
            "flights": len(ledger.flights),
            "limiter's users": len(scheduler.limiter),
            "limiter's rates": len(scheduler.limiter._rates),
            "instants of users": len(self.instants),
        }
        for queue in (scheduler.waiting, scheduler.kv_holding_waiting):
            left["rows"] = len(queue._rows)
            left["positions"] = len(queue._position)
            left["found shut"] = len(queue.found_shut)
            assert len(queue._heads) <= 64
        assert not any(left.values()), {what: n for what, n in left.items() if n}
        assert ledger.departed.balanced
        assert ledger.departed.in_flight == 0


def _charged(log: RequestLog) -> str | None:
    """Whose quota a request uses; None is everybody without a valid name."""
    return log.user if identity.is_valid(log.user) else None


def _aborted() -> object:
    from vllm.v1.request import RequestStatus

    return RequestStatus.FINISHED_ABORTED


def soak(depth: int, backend: Contract, seed: int, steps: int, rounds: int) -> Soak:
    """`rounds` rounds of `steps` busy steps each; memory is flat from the first round on."""
    run = Soak(depth, backend, seed)
    for _ in range(rounds):
        run.churn(steps)
        run.empty()
        gc.collect()
        run.objects.append(sys.getallocatedblocks())
    # Objects alive in the process, the first round having filled what is filled once. A leak of
    # one a request, a step or a user would be as many as there were.
    grown = run.objects[-1] - run.objects[0]
    allowed = 200 + run.figures["requests"] * (rounds - 1) // rounds // 10
    assert grown < allowed, f"{run.objects} objects after each round, grown by {grown}"
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="soak")
    parser.add_argument("--steps", type=int, default=300_000, help="in all; default %(default)s")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cell", type=int, choices=range(6), help="only this one of the six")
    args = parser.parse_args()
    cells = [(depth, backend) for depth in (1, 2) for backend in BUILT_IN]
    if args.cell is not None:
        cells = [cells[args.cell]]
    each = args.steps // len(cells) // 4
    for number, (depth, backend) in enumerate(cells):
        start, seed = time.monotonic(), args.seed + number
        run = soak(depth, backend, seed, each, 4)
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(
            f"{backend.name}, {'async' if depth == 2 else 'sync'}, seed {seed}: "
            + ", ".join(f"{count:,} {what}" for what, count in sorted(run.figures.items()))
            + f"; objects {run.objects}; {time.monotonic() - start:.0f} s, at most {rss} MiB",
            flush=True,
        )


if __name__ == "__main__":
    main()
