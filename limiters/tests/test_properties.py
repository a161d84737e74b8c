"""Promises that need no oracle: the bound, the reach, GCRA and token bucket as one."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiters import make_limiter

from .test_against_oracle import MS, S, asks, bursts, changes, openings, pauses, rates, steps_back

any_step = st.tuples(st.just("any_step"), st.integers(0, 12 * S) | pauses, pauses)


@pytest.mark.parametrize("auto_burst", [False, True])
@settings(max_examples=80, deadline=None)
@given(
    opening=openings,
    history=st.lists(st.one_of(asks, asks, changes, steps_back, any_step), min_size=8, max_size=30),
)
def test_gcra_and_bucket_answer_alike(auto_burst, opening, history):
    """On every input: time that steps back, and steps told late, long or over one another."""
    default, own, burst, now = opening
    pair = [
        make_limiter(name, default_rate=default, rates=own, burst_ns=burst, auto_burst=auto_burst)
        for name in ("gcra", "token_bucket")
    ]
    for verb, *args in history:
        if verb == "pause":
            now += args[0]
            continue
        if verb == "until_ready":
            now = max(now, pair[0].ready_at_ns(args[0], now) + args[1])
            continue
        if verb == "any_step":
            now += args[1]
            verb, args = "end_step", [now - args[0]]
        gcra, bucket = (getattr(limiter, verb)(*args, now) for limiter in pair)
        assert gcra == bucket
        for user in ("a", "b", "new"):
            gcra, bucket = pair
            assert gcra.available(user, now) == bucket.available(user, now)
            assert gcra.ready_at_ns(user, now) == bucket.ready_at_ns(user, now)
        assert len(gcra) == len(bucket)


def most(window_ns, spare_ns, rate):
    return math.floor(Fraction(window_ns + spare_ns, S) * rate) + 1


def worst_windows(takes):
    """Every closed window from one take to another: (first, last, takes in it)."""
    for first in range(len(takes)):
        for last in range(first, len(takes)):
            yield takes[first], takes[last], last - first + 1


SLOW = ["1/10", "10/13", "3", "10", "33"]


@pytest.mark.parametrize("name", ["gcra", "token_bucket", "rolling_window"])
@settings(max_examples=60, deadline=None)
@given(
    rate=st.sampled_from(SLOW).map(Fraction),
    burst=bursts,
    moves=st.lists(st.tuples(pauses, st.integers(1, 30), st.booleans()), min_size=3, max_size=12),
)
def test_no_window_holds_more_than_the_bound(name, rate, burst, moves):
    limiter, now, takes = make_limiter(name, default_rate=rate, burst_ns=burst), 0, []
    for pause, wanted, refund in moves:
        now += pause
        takes += [now] * limiter.try_take_many("a", wanted, now)
        if refund and takes and takes[-1] == now:
            limiter.refund("a", now)
            takes.pop()
        if wanted % 2:
            limiter.cleanup_idle_users(now)
    for first, last, count in worst_windows(takes):
        assert count <= most(last - first, burst, rate)


@pytest.mark.parametrize("name", ["gcra", "token_bucket"])
@settings(max_examples=60, deadline=None)
@given(
    rate=st.sampled_from(SLOW).map(Fraction),
    burst=bursts,
    moves=st.lists(
        st.tuples(st.integers(0, 3 * S) | pauses, st.integers(1, 40), st.booleans()),
        min_size=3,
        max_size=12,
    ),
    overlap=st.integers(0, S),
)
def test_the_bound_of_auto_burst(name, rate, burst, moves, overlap):
    limiter = make_limiter(name, default_rate=rate, burst_ns=burst, auto_burst=True)
    now, takes, step_at = 0, [], {}
    for length, wanted, is_step in moves:
        now += length
        if is_step:
            limiter.end_step(now - length - overlap, now)
            step_at[now] = max(length + overlap, step_at.get(now, 0))
        takes += [now] * limiter.try_take_many("a", wanted, now)
        limiter.refund("b", now)
        if wanted % 2:
            limiter.cleanup_idle_users(now)
        elif takes and takes[-1] == now:
            limiter.refund("a", now)
            takes.pop()
    for first, last, count in worst_windows(takes):
        assert count <= most(last - first, max(burst, step_at.get(first, 0)), rate)


@pytest.mark.parametrize("name", ["gcra", "token_bucket"])
@settings(max_examples=30, deadline=None)
@given(
    rate=st.sampled_from(["3", "10", "33", "100"]).map(Fraction),
    streams=st.integers(1, 5),
    paces=st.lists(st.integers(1, 100), min_size=2, max_size=10),
)
def test_steps_within_the_burst_lose_nothing(name, rate, streams, paces):
    """From the first token of a full quota, T * rate tokens in [0, T]."""
    longest = min(100 * MS, math.floor(S * streams / rate))
    limiter, now, taken = make_limiter(name, default_rate=rate), 0, 0
    for percent in paces * 10:
        taken += sum(limiter.try_take("a", now) for _stream in range(streams))
        assert taken >= now * rate / S
        now += max(1, longest * percent // 100)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(["gcra", "token_bucket", "rolling_window"]),
    rate=rates,
    takes=st.lists(st.tuples(pauses, st.integers(0, 7)), min_size=2, max_size=10),
)
def test_many_is_that_many_single_takes(name, rate, takes):
    by_one, at_once = (make_limiter(name, default_rate=rate) for _ in range(2))
    now = 0
    for pause, count in takes:
        now += pause
        granted = sum(by_one.try_take("a", now) for _ in range(count))
        assert at_once.try_take_many("a", count, now) == granted
        assert at_once.ready_at_ns("a", now) == by_one.ready_at_ns("a", now)
        assert len(at_once) == len(by_one)


@settings(max_examples=100, deadline=None)
@given(
    name=st.sampled_from(["gcra", "token_bucket", "rolling_window"]),
    rate=rates,
    own=st.none() | rates,
    takes=st.lists(st.tuples(pauses, st.lists(st.sampled_from("abcd"), max_size=9)), min_size=2),
)
def test_all_is_a_token_each_or_nothing(name, rate, own, takes):
    """The user `d` may have a rate of its own, with which GCRA takes another way."""
    own_rates = {"d": own} if own else None
    by_one, at_once = (make_limiter(name, default_rate=rate, rates=own_rates) for _ in range(2))
    now = 0
    for pause, users in takes:
        now += pause
        due = all(by_one.available(user, now) >= users.count(user) for user in users)
        assert at_once.try_take_all(users, now) is due
        if due:
            assert all(by_one.try_take(user, now) for user in users)
        for user in "abcd":
            for later in (now, now + MS, now + S):
                assert at_once.available(user, later) == by_one.available(user, later)
                assert at_once.ready_at_ns(user, later) == by_one.ready_at_ns(user, later)
