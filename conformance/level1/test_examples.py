"""Examples with stated answers."""

import json
from importlib.resources import files

from conformance.rules import rule

_FILES = {"gcra": "limiter_cases.json", "rolling_window": "window_cases.json"}


def cases(contract):
    """The examples for what the contract says that it decides like, with its options."""
    text = files(__package__).joinpath(_FILES[contract.decides_like]).read_text(encoding="utf-8")
    window_ns = contract.options.get("window_ns")
    window_ms = None if window_ns is None else window_ns // 10**6
    return [case for case in json.loads(text)["cases"] if case.get("window_ms") == window_ms]


def play(limiter, verb, now, user):
    if verb == "users":
        return len(limiter)
    if verb == "cleanup_idle_users":
        return limiter.cleanup_idle_users(now)
    return getattr(limiter, verb)(user, now)


@rule("L-CASES-1", claimed=lambda contract: contract.decides_like is not None)
def test_L_CASES_1_every_example_gives_its_answers(contract, trial):
    found = cases(contract)
    if not found:
        trial.broken(
            at=str(dict(contract.options)), seen="no example for these options", promised="some"
        )
    for case in found:
        limiter = contract.limiter(case["rate"], burst_ns=case["burst_ms"] * 10**6)
        for number, (verb, now, user, expected) in enumerate(case["ops"], 1):
            answer = play(limiter, verb, now, user)
            if expected is not None and answer != expected:
                trial.broken(
                    user=user,
                    at=f"example {case['id']}, call {number}: {verb} at {now} ns",
                    seen=answer,
                    promised=expected,
                    note=case["why"],
                )
    trial.figure(f"{len(found)} examples")
