"""Faults that other rate limiters shipped, as small inputs with the right answers."""

import json
from pathlib import Path

import pytest

from limiters import make_limiter

CASES = json.loads(Path(__file__).with_name("cases.json").read_text(encoding="utf-8"))["cases"]
BACKENDS = [
    ("gcra", {}),
    ("token_bucket", {}),
    ("gcra", {"auto_burst": True}),
    ("token_bucket", {"auto_burst": True}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
@pytest.mark.parametrize(("name", "options"), BACKENDS)
def test_answers(case, name, options):
    assert name in case["applies"]
    limiter = make_limiter(
        name, default_rate=case["rate"], burst_ns=case["burst_ms"] * 10**6, **options
    )
    for verb, now_ns, user, expected in case["ops"]:
        if verb == "users":
            answer = len(limiter)
        elif verb == "cleanup_idle_users":
            answer = limiter.cleanup_idle_users(now_ns)
        else:
            answer = getattr(limiter, verb)(user, now_ns)
        if expected is not None:
            assert answer == expected, f"{verb} at {now_ns} ns: {case['why']}"
