"""State: who is idle is forgotten, and nothing grows with time."""

import sys
from fractions import Fraction

from conformance.level1.grants import take_all
from conformance.level1.settings import MS, settings_for
from conformance.rules import rule

KIB = 1024


@rule("L-IDLE-1")
def test_L_IDLE_1_clean_up_forgets_who_came_and_went(contract, trial):
    for setting in settings_for(contract):
        limiter = contract.limiter(setting.rate, burst_ns=setting.burst_ns)
        for user in "abc":
            take_all(limiter, user, 0)
        before = len(limiter)
        later = 10 * (contract.evenness_ns(*setting) + setting.burst_ns)
        limiter.try_take("late", later)
        forgotten = limiter.cleanup_idle_users(later)
        trial.check(
            (before, forgotten, len(limiter)) == (3, 3, 1),
            user="a, b and c",
            at=f"{later} ns after their last take at {setting}",
            seen=f"{before} with state before, clean-up that returns {forgotten}, then "
            f"{len(limiter)} with state, one of whom just took a token",
            promised="3 before, 3 forgotten, 1 left",
        )
        again = limiter.cleanup_idle_users(later)
        trial.check(
            again == 0, at=f"a second clean-up at {later} ns", seen=again, promised="0 forgotten"
        )


@rule("L-STATE-1")
def test_L_STATE_1_one_user_takes_bounded_room(contract, trial):
    for rate in (Fraction(10), Fraction(33), Fraction(200)):
        limiter = contract.limiter(rate)
        full = contract.bound(0, rate, 100 * MS)
        early, now = run_for(limiter, 10 * full, 0)
        late, now = run_for(limiter, 90 * full, now)
        trial.check(
            late <= early + KIB,
            user="a",
            at=f"{100 * full} takes at {rate} tok/s",
            seen=f"state of {late} bytes",
            promised=f"no more than {early} bytes, as after {10 * full} takes, and 1 KiB",
        )
        if rate == 10:
            trial.figure(f"state after {10 * full} takes {early} bytes, {100 * full} takes {late}")


@rule("L-STATE-1")
def test_L_STATE_1_strangers_take_none(contract, trial):
    limiter = contract.limiter(10)
    empty = room(limiter)
    for number in range(300):
        limiter.available(f"asked {number}", number)
        limiter.ready_at_ns(f"asked {number}", number)
        limiter.refund(f"refunded {number}", number)
    trial.check(
        len(limiter) == 0 and room(limiter) <= empty + KIB,
        user="300 strangers",
        at="300 ns, asked about and refunded but never granted",
        seen=f"{len(limiter)} with state, {room(limiter)} bytes",
        promised=f"none, {empty} bytes as before",
    )


@rule("L-STATE-1")
def test_L_STATE_1_clean_up_gives_the_room_back(contract, trial):
    limiter = contract.limiter(10, rates={"own": Fraction(10, 13)})
    take_all(limiter, "own", 0)
    before = room(limiter)
    now = 0
    for number in range(200):
        take_all(limiter, f"user {number}", now)
        now += MS
        take_all(limiter, f"user {number}", now)
    limiter.cleanup_idle_users(now + 3600 * 10**9)
    after = room(limiter)
    trial.check(
        after <= before * 6 // 5 + 4 * KIB,
        user="200 users",
        at="an hour after their last take, after clean-up",
        seen=f"{after} bytes",
        promised=f"{before} bytes as before they came, 20 % and 4 KiB more at most",
    )


def run_for(limiter, takes, now):
    """Take greedily; the most room on the way, and the instant at the end."""
    most, taken = 0, 0
    for _spell in range(takes):
        if taken >= takes:
            break
        got = take_all(limiter, "a", now)
        if taken % 7 < got or taken + got >= takes:
            most = max(most, room(limiter))
        taken += got
        # A step a time, so that a log holds instants that differ.
        now = max(now + 1, limiter.ready_at_ns("a", now))
    return most, now


def room(value, seen=None):
    """Bytes that an object reaches: what its containers hold now, not what they once held."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, type) or callable(value):
        return 0
    seen.add(id(value))
    if isinstance(value, int | float | str | bytes | bytearray) or value is None:
        return sys.getsizeof(value)
    total = 48
    if isinstance(value, dict):
        return total + sum(16 + room(k, seen) + room(v, seen) for k, v in value.items())
    if hasattr(value, "__iter__") and hasattr(value, "__len__") and not hasattr(value, "try_take"):
        total += sum(8 + room(each, seen) for each in value)
    for name in (*_slots(value), *getattr(value, "__dict__", ())):
        total += 8 + room(getattr(value, name, None), seen)
    return total


def _slots(value):
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                hidden = name.startswith("__") and not name.endswith("__")
                yield f"_{base.__name__.lstrip('_')}{name}" if hidden else name
