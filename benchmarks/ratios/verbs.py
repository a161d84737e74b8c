"""`try_take` of each backend, the floor and the peers: rounds to be timed."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.ratios.floor import bare
from benchmarks.ratios.peers import PEERS, RATE
from benchmarks.ratios.timing import Round
from limiters import make_limiter

Take = Callable[[str, int], bool]

CALLS = 2_000
CROWD = 10_000
PACE_NS = 100_000_000
BACKENDS = ("gcra", "token_bucket", "rolling_window")


def _takes() -> dict[str, Take]:
    ours: dict[str, Take] = {
        name: make_limiter(name, default_rate=10).try_take for name in BACKENDS
    }
    return {"floor": bare(PACE_NS), **ours}


def allowed() -> dict[str, Round]:
    """One user, at its pace: every take passes."""
    return {name: _allowed(take) for name, take in _takes().items()}


def _allowed(take: Take) -> Round:
    now_ns = 0

    def run() -> int:
        nonlocal now_ns
        instants = range(now_ns, now_ns + CALLS * PACE_NS, PACE_NS)
        now_ns += CALLS * PACE_NS
        for instant in instants:
            take("user", instant)
        return CALLS

    return run


def denied() -> dict[str, Round]:
    """One user, out of quota: no take passes."""
    return {name: _denied(take) for name, take in _takes().items()}


def _denied(take: Take) -> Round:
    while take("user", 0):
        pass
    instants = range(1, CALLS + 1)

    def run() -> int:
        for instant in instants:
            take("user", instant)
        return CALLS

    return run


def crowd() -> dict[str, Round]:
    """10,000 users in turn, each at its pace: every take passes."""
    users = [f"user-{n}" for n in range(CROWD)]
    return {name: _crowd(take, users) for name, take in _takes().items()}


def _crowd(take: Take, users: list[str]) -> Round:
    now_ns = 0

    def run() -> int:
        nonlocal now_ns
        now_ns += PACE_NS
        for user in users:
            take(user, now_ns)
        return len(users)

    return run


def peers() -> dict[str, Round]:
    """One user whose limit is never reached: GCRA and the peers."""
    ours = make_limiter("gcra", default_rate=RATE).try_take
    return {"gcra": _allowed(ours), **{name: _peer(make()) for name, make in PEERS.items()}}


def _peer(take: Callable[[str], object]) -> Round:
    calls = CALLS // 10

    def run() -> int:
        for _ in range(calls):
            take("user")
        return calls

    return run


KINDS: dict[str, tuple[Callable[[], dict[str, Round]], int]] = {
    "allowed": (allowed, 60),
    "denied": (denied, 60),
    "10,000 users": (crowd, 15),
    "peers": (peers, 40),
}
"""What there is to time, and in how many rounds."""
