"""The five semantics, each judged from the engine's record of the main job.

1 Only output tokens are limited, prompt tokens are free.
2 All streams of a user share one quota, and the output is even in time.
3 Out of quota, a request pauses and goes on: never cut, never an error.
4 While one user is throttled, the others go on as before.
5 The scheduler may be synchronous or asynchronous.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from conformance.endpoint import record_verdicts as judge
from conformance.endpoint import verdicts as client
from conformance.endpoint.promise import SECOND_NS
from conformance.endpoint.record import EngineRecord
from conformance.endpoint.record_verdicts import REACHED
from conformance.endpoint.verdict import Verdict
from gpu_e2e.engine.launch import Mode
from gpu_e2e.workload import FREE, LIMITS, Run, expected_tokens


@dataclass(frozen=True, slots=True)
class Semantic:
    """One semantic with the verdicts that it rests on."""

    number: int
    title: str
    verdicts: Sequence[Verdict]

    @property
    def ok(self) -> bool:
        return all(verdict.ok for verdict in self.verdicts)


def judge_all(record: EngineRecord, run: Run, mode: Mode, *, same_tokens: bool) -> list[Semantic]:
    """All five, for one run on one engine.

    `same_tokens`: the device gives the same tokens whatever the batch (a CPU does); elsewhere
    lengths and finish reasons are compared instead.
    """
    together = record.within(*run.together)
    return [
        Semantic(1, "only output tokens are limited", _only_output(record, run)),
        Semantic(2, "one even quota for all of a user's streams", _one_quota(together, run)),
        Semantic(3, "paused, never cut", _paused(together, run, same_tokens)),
        Semantic(4, "others go on", _others(together, record.within(*run.alone))),
        Semantic(5, f"{mode} scheduling", [_depth(record, mode)]),
    ]


def _only_output(record: EngineRecord, run: Run) -> list[Verdict]:
    return [judge.whole(record), judge.ledger(record), *(charges(record, run, u) for u in LIMITS)]


def charges(record: EngineRecord, run: Run, user: str) -> Verdict:
    """The user was charged for its output and for nothing of its prompts.

    On top may come what was dispatched and lost: of a request that ends at its end of sequence an
    asynchronous engine has sent off one more position, so at most one for each.
    """
    streams = run.of(user)
    output = sum(s.completion_tokens or 0 for s in streams)
    prompt = sum(s.prompt_tokens or 0 for s in streams)
    requests = record.by_request(user)
    charged = sum(d.charged for ds in requests.values() for d in ds)
    lost = sum(sum(record.lost.get(req, {}).values()) for req in requests)
    finished = sum(req in record.finishes for req in requests)
    figures = {"prompt": prompt, "output": output, "charged": charged, "lost": lost}
    message = f"{user}: {prompt} prompt tokens free, {charged} charged = {output} output"
    if lost:
        message += f" + {lost} lost"
    if finished != len(streams):
        message += f"; {finished} of {len(streams)} requests finished by the record"
    ok = prompt > 0 and output > 0 and charged == output + lost
    ok = ok and lost <= len(requests) and finished == len(streams)
    return Verdict("charges", ok, message, figures)


def _one_quota(together: EngineRecord, run: Run) -> list[Verdict]:
    verdicts = []
    for user in LIMITS:
        promise = together.promise(user)
        if promise is None:
            verdicts.append(Verdict("bound", False, f"{user}: the engine has no limit for it"))
            continue
        streams = len(run.of(user))
        verdicts += [
            judge.bound(together, user, promise),
            judge.rate(together, user, promise, streams=streams),
            judge.evenness(together, user, promise),
        ]
        if streams > 1:
            verdicts.append(judge.spread(together, user))
    return verdicts


def _paused(together: EngineRecord, run: Run, same_tokens: bool) -> list[Verdict]:
    limited = [s for user in LIMITS for s in run.of(user)]
    verdicts = [
        _was_throttled(together),
        client.completeness(limited, expected_tokens(run.alice_streams)),
    ]
    free = run.of(FREE)
    if same_tokens:
        verdicts.append(client.identical(limited, free))
    verdicts.append(client.completeness(free))
    return verdicts


def _was_throttled(together: EngineRecord) -> Verdict:
    """Without a pause there is nothing to survive: whoever reached its limit must have paused.

    On a host too slow for 100 tok/s bob may never reach his.
    """
    spells = {user: sum(t.user == user for t in together.throttled) for user in LIMITS}
    never = [user for user, count in spells.items() if not count and _reached(together, user)]
    message = ", ".join(f"{user} paused {count} times" for user, count in spells.items())
    return Verdict("throttled", any(spells.values()) and not never, message, spells)


def _reached(together: EngineRecord, user: str) -> bool:
    instants = [d.ns for d in together.of_user(user)]
    return bool(instants) and (
        len(instants) * SECOND_NS >= REACHED * LIMITS[user] * (instants[-1] - instants[0])
    )


def _others(together: EngineRecord, alone: EngineRecord) -> list[Verdict]:
    return [judge.undisturbed(together, FREE), judge.unslowed(together, FREE, alone)]


def _depth(record: EngineRecord, mode: Mode) -> Verdict:
    """A synchronous engine has one token of a request in flight, an asynchronous one two."""
    wanted = 2 if mode == "async" else 1
    message = f"{record.depth} tokens of one request in flight at most, {wanted} expected"
    return Verdict("depth", record.depth == wanted, message, {"depth": record.depth})
