"""Every backend against a plain oracle on Fractions, on random histories at awkward instants."""

import copy
import sys
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiters import Limiter, make_limiter

from .oracle import UNLIMITED, GcraOracle, WindowOracle

MS = 10**6
S = 10**9
USERS = ("a", "b", "c")
RATES = [Fraction(r) for r in ("10", "33", "1/10", "10/13", "3", "7.5", "1000", "123.456")]
RATES += [Fraction(1, 3600), Fraction(10**9), Fraction(10**10, 3)]
BURSTS = [0, 1, 33 * MS, 100 * MS, 100 * MS + 1, 2 * S]

rates = st.sampled_from(RATES)
maybe_rates = st.none() | rates
users = st.sampled_from(USERS)
bursts = st.sampled_from(BURSTS)

# Instants on and beside the edges: a ns off, whole intervals, whole bursts, long pauses.
pauses = st.one_of(
    st.sampled_from([0, 0, 1, 30 * MS]),
    st.builds(lambda rate, off: max(0, S * rate.denominator // rate.numerator + off), rates,
              st.integers(-1, 1)),
    st.builds(lambda burst, off: max(0, burst + off), bursts, st.integers(-1, 1)),
    st.integers(0, 3 * S),
)  # fmt: skip

asks = st.one_of(
    st.tuples(st.just("try_take"), users),
    st.tuples(st.just("try_take"), users),
    st.tuples(st.just("try_take_many"), users, st.integers(0, 5)),
    st.tuples(st.just("refund"), users),
    st.tuples(st.just("cleanup_idle_users")),
    st.tuples(st.just("pause"), pauses),
    st.tuples(st.just("until_ready"), users, st.integers(-1, 1)),
    st.tuples(st.just("until_ready"), users, st.integers(0, 1)),
)
changes = st.one_of(
    st.tuples(st.just("set_rate"), users, rates),
    st.tuples(st.just("unset_rate"), users),
    st.tuples(st.just("set_default_rate"), maybe_rates),
    st.tuples(st.just("set_burst"), bursts),
)
steps_back = st.tuples(st.just("pause"), pauses.map(lambda ns: -ns))
steps = st.tuples(st.just("end_step"), pauses | st.integers(0, 12 * S))
histories = st.lists(
    st.one_of(asks, asks, changes, steps_back, steps_back, steps_back), min_size=8, max_size=30
)
step_histories = st.lists(st.one_of(asks, steps, steps, changes), min_size=8, max_size=30)


def change_oracle(oracle, verb, now, args):
    if verb == "set_rate":
        oracle.change(now, args[0], rates={**oracle.rates, args[0]: args[1]})
    elif verb == "unset_rate":
        rest = {user: rate for user, rate in oracle.rates.items() if user != args[0]}
        if rest != oracle.rates:
            oracle.change(now, args[0], rates=rest)
    elif verb == "set_default_rate":
        oracle.change(now, default=args[0])
    else:
        oracle.change(now, burst=args[0])


def same(limiter: Limiter, oracle, now: int, with_counts: bool, last: str) -> None:
    assert len(limiter) == oracle.users()
    for user in sorted(USERS, key=lambda user: user == last):
        ready = limiter.ready_at_ns(user, now)
        assert ready == oracle.ready_at_ns(user, now)
        if with_counts:
            available = limiter.available(user, now)
            assert available == (
                sys.maxsize if (own := oracle.available(user, now)) == UNLIMITED else own
            )
    assert len(limiter) == oracle.users(), "a question wrote something"
    if ready > now:  # of one user: copies are dear
        assert copy.deepcopy(limiter).try_take(user, ready)
        assert not copy.deepcopy(limiter).try_take(user, ready - 1)


def play(limiter: Limiter, oracle, history, now: int, burst: int) -> None:
    for verb, *args in history:
        if verb == "pause":
            now += args[0]
        elif verb == "until_ready":
            now = max(now, limiter.ready_at_ns(args[0], now) + args[1])
        elif verb == "end_step":
            now += args[0]
            limiter.end_step(now - args[0], now)
            oracle.end_step(now - args[0], now)
        elif verb in ("set_rate", "unset_rate", "set_default_rate", "set_burst"):
            getattr(limiter, verb)(*args, now)
            change_oracle(oracle, verb, now, args)
        else:
            answer = getattr(limiter, verb)(*args, now)
            expected = getattr(oracle, verb)(*args, now)
            if verb.startswith("try"):
                assert answer == expected, (verb, args, now)
        few = all(
            (rate := oracle.rate(user)) is None or rate * (oracle.burst + 12 * S) < 3000
            for user in USERS
        )
        same(limiter, oracle, now, few, args[0] if args else USERS[0])


openings = st.tuples(
    maybe_rates, st.dictionaries(users, rates, max_size=2), bursts, st.integers(-S, S)
)


@pytest.mark.parametrize("name", ["gcra", "token_bucket"])
@settings(max_examples=80, deadline=None)
@given(opening=openings, history=histories)
def test_gcra_and_bucket_follow_the_rules(name, opening, history):
    default, own, burst, now = opening
    limiter = make_limiter(name, default_rate=default, rates=own, burst_ns=burst)
    play(limiter, GcraOracle(default, own, burst), history, now, burst)


@pytest.mark.parametrize("name", ["gcra", "token_bucket"])
@settings(max_examples=80, deadline=None)
@given(opening=openings, history=step_histories)
def test_auto_burst_follows_the_rules(name, opening, history):
    default, own, burst, now = opening
    limiter = make_limiter(name, default_rate=default, rates=own, burst_ns=burst, auto_burst=True)
    play(limiter, GcraOracle(default, own, burst, auto=True), history, now, burst)


@settings(max_examples=100, deadline=None)
@given(
    opening=openings,
    window=st.none() | st.sampled_from([1, 10 * MS, 100 * MS, S, 5 * S]),
    history=histories,
)
def test_rolling_window_follows_the_rules(opening, window, history):
    default, own, burst, now = opening
    limiter = make_limiter(
        "rolling_window", default_rate=default, rates=own, burst_ns=burst, window_ns=window
    )
    play(limiter, WindowOracle(default, own, burst, window), history, now, burst)
