"""What GCRA and the token bucket promise, by example. `both` runs a test on either."""

import sys
from fractions import Fraction

import pytest

from limiters import Gcra, make_limiter

MS = 10**6
S = 10**9


@pytest.fixture(params=["gcra", "token_bucket"])
def both(request):
    return lambda rate, **settings: make_limiter(request.param, default_rate=rate, **settings)


def drain(limiter, user, now):
    return limiter.try_take_many(user, 10**12, now)


@pytest.mark.parametrize("start", [0, -S, 10**18, -(10**18)])
def test_the_time_line_of_the_design(both, start):
    limiter = both(10)
    granted = {}
    for ms in range(0, 301, 30):
        granted[ms] = sum(limiter.try_take("a", start + ms * MS) for _stream in range(4))
    assert {ms: takes for ms, takes in granted.items() if takes} == {0: 2, 120: 1, 210: 1, 300: 1}


def test_users_do_not_share(both):
    limiter = both(10)
    assert drain(limiter, "a", 0) == 2
    assert drain(limiter, "b", 0) == 2


def test_an_idle_user_saves_up_the_burst_and_no_more(both):
    limiter = both(100)
    assert drain(limiter, "a", 0) == 11
    assert drain(limiter, "a", 3600 * S) == 11


def test_no_burst_is_one_token_at_a_time(both):
    limiter = both(3, burst_ns=0)
    assert drain(limiter, "a", 0) == 1
    assert limiter.ready_at_ns("a", 0) == 333_333_334


def test_no_fraction_of_a_token_is_ever_lost(both):
    """At 33/s 1/rate is no whole number of ns; 3,300 tokens take 100 s to the ns."""
    limiter = both(33, burst_ns=1)  # so that a take may come in the ns in which it is due
    now = 0
    for _ in range(3300):
        assert limiter.try_take("a", now)
        now = limiter.ready_at_ns("a", now)
    assert now == 100 * S - 1


def test_an_idle_user_starts_anew_from_a_whole_ns(both):
    """What rounding up added before the pause is paid, and must not be paid back after it."""
    limiter = both(33, burst_ns=0)
    for start in (0, S, 2 * S):
        assert limiter.try_take("a", start)
        assert limiter.ready_at_ns("a", start) == start + 30_303_031


def test_an_unlimited_user_has_no_state(both):
    limiter = both(None, rates={"slow": 1})
    assert limiter.rate_of("a") is None
    assert all(limiter.try_take("a", 0) for _ in range(1000))
    assert limiter.try_take_many("a", 10**9, 0) == 10**9
    limiter.refund("a", 0)
    assert limiter.available("a", 0) == sys.maxsize
    assert limiter.ready_at_ns("a", 5) == 5
    assert len(limiter) == 0
    assert drain(limiter, "slow", 0) == 1


def test_a_take_and_its_refund_leave_no_trace(both):
    limiter = both(7)
    limiter.try_take("b", 0)
    for now in (0, 1, 40 * MS):
        before = limiter.ready_at_ns("b", now), limiter.available("b", now), len(limiter)
        assert limiter.try_take("a", now)
        limiter.refund("a", now)
        assert (limiter.ready_at_ns("b", now), limiter.available("b", now), len(limiter)) == before


def test_a_refund_of_debt_gives_back_one_token(both):
    limiter = both(10, burst_ns=300 * MS)
    assert drain(limiter, "a", 0) == 4
    limiter.refund("a", 0)
    limiter.refund("a", 0)
    assert drain(limiter, "a", 0) == 2


def test_time_that_steps_back_mints_nothing(both):
    limiter = both(10)
    assert drain(limiter, "a", S) == 2
    assert drain(limiter, "a", S // 2) == 0
    assert limiter.ready_at_ns("a", S // 2) == S + 100 * MS
    assert drain(limiter, "a", S + 99 * MS) == 0
    assert drain(limiter, "a", S + 100 * MS) == 1


def test_a_level_is_linear_in_time_both_ways(both):
    limiter = both(10, burst_ns=S)
    assert limiter.try_take("a", S)
    assert limiter.try_take("a", S - 300 * MS), "10 were left, less 3 that had not come yet"
    assert limiter.available("a", S - 300 * MS) == 6
    assert limiter.available("a", S) == 9


def test_cleanup_says_how_many(both):
    limiter = both(10)
    for user in ("a", "b", "c"):
        limiter.try_take(user, 0)
    limiter.try_take("c", 0)
    assert limiter.cleanup_idle_users(100 * MS) == 2
    assert len(limiter) == 1


# A change of rate, default or burst keeps the level in tokens.


def test_a_cut_does_not_make_a_user_pay_its_debt_at_the_new_rate(both):
    limiter = both(1000)
    assert drain(limiter, "a", 0) == 101
    limiter.set_rate("a", 1, 0)
    assert limiter.ready_at_ns("a", 0) == S  # an empty quota at 1/s, not 100 s of debt


def test_a_raise_does_not_wait_for_the_old_instant(both):
    limiter = both(1)
    assert drain(limiter, "a", 0) == 1
    ready = limiter.ready_at_ns("a", 0)
    limiter.set_rate("a", 1000, 0)
    assert ready == 900 * MS
    assert limiter.ready_at_ns("a", 0) == 900 * 10**3  # 0.9 of a token was missing


def test_a_raise_hands_a_new_user_no_more_than_the_old_full_quota(both):
    limiter = both(10)
    limiter.set_default_rate(1000, 0)
    assert limiter.available("a", 0) == 2
    assert limiter.available("b", 10 * MS) == 12
    assert limiter.available("c", 100 * MS) == 101
    limiter.set_rate("d", 10_000, 100 * MS)
    assert limiter.available("d", 100 * MS) == 101


def test_a_raise_is_remembered_even_if_time_steps_back(both):
    limiter = both(10)
    limiter.set_default_rate(1000, 0)
    limiter.cleanup_idle_users(S)
    assert limiter.available("a", S) == 101
    assert limiter.available("a", 10 * MS) == 12


@pytest.mark.parametrize("start", [0, 1000 * S])
@pytest.mark.parametrize("raised", [1000, 3000])
def test_a_user_may_have_more_than_a_new_one_after_a_raise(both, raised, start):
    full = raised // 10 + 1
    limiter = both(10, rates={"a": raised})
    assert limiter.try_take("a", start)
    limiter.set_default_rate(raised, start)
    limiter.unset_rate("a", start)
    assert limiter.available("a", start) == full - 1, "its level survives"
    limiter.cleanup_idle_users(start + 2 * MS)
    assert limiter.available("a", start + 2 * MS) == full, "full, but not like a new user yet"
    assert limiter.available("b", start + 2 * MS) == 2 + raised * 2 // 1000
    assert limiter.cleanup_idle_users(start + 100 * MS) == 1


def test_a_cut_caps_at_the_new_full_quota(both):
    limiter = both(1000)
    limiter.try_take("a", 0)
    limiter.set_default_rate(10, 0)
    assert limiter.available("a", 0) == limiter.available("b", 0) == 2
    assert len(limiter) == 0, "a full user is forgotten"


def test_going_down_and_up_again_at_once_mints_nothing(both):
    limiter = both(1000)
    drain(limiter, "a", 0)
    limiter.set_default_rate(1, 0)
    limiter.set_default_rate(1000, 0)
    assert drain(limiter, "a", 0) == 0
    assert drain(limiter, "b", 0) == 1, "b had the full quota of 1/s in between"


def test_a_longer_burst_has_to_be_saved_up(both):
    limiter = both(10, rates={"own": 10})
    limiter.set_burst(S, 0)
    for user in ("own", "other"):
        assert limiter.available(user, 0) == 2
        assert limiter.available(user, 900 * MS) == 11
    assert limiter.cleanup_idle_users(S) == 1
    assert len(limiter) == 0


def test_a_shorter_burst_holds_at_once(both):
    limiter = both(10, burst_ns=S)
    limiter.set_burst(0, 0)
    assert drain(limiter, "a", 0) == 1
    assert limiter.ready_at_ns("a", 0) == 100 * MS


def test_rates_of_single_users(both):
    limiter = both(10, rates={"a": "1/2"})
    assert limiter.rate_of("a") == Fraction(1, 2)
    limiter.set_rate("b", 20.5, 0)
    assert limiter.rate_of("b") == Fraction(41, 2)
    limiter.unset_rate("a", 0)
    limiter.unset_rate("never set", 0)
    assert limiter.rate_of("a") == limiter.rate_of("c") == 10
    limiter.set_default_rate(None, 0)
    assert limiter.rate_of("a") is None
    assert limiter.rate_of("b") == Fraction(41, 2)
    assert limiter.default_rate is None


def test_a_user_that_becomes_unlimited_has_no_state(both):
    limiter = both(10, rates={"own": 10})
    limiter.try_take("a", 0)
    limiter.try_take("own", 0)
    limiter.set_default_rate(None, 0)
    assert len(limiter) == 1
    limiter.unset_rate("own", 0)
    assert len(limiter) == 0
    limiter.set_default_rate(10, 0)
    assert drain(limiter, "a", 0) == 2


@pytest.mark.parametrize("rate", ["1/3600", "1e-9", 10**9, 10**12, "999999999.999999999"])
def test_the_ends_of_the_range(both, rate):
    limiter = both(rate)
    full = 1 + limiter.rate_of("a") / 10
    assert limiter.available("a", 0) == full // 1
    assert drain(limiter, "a", 0) == full // 1
    ready = limiter.ready_at_ns("a", 0)
    assert not limiter.try_take("a", ready - 1)
    assert limiter.try_take("a", ready)


def test_instants_are_exact_after_a_debt_of_whole_ns():
    """33 tokens at 33/s are a second to the ns; what follows rounds up from there."""
    limiter = Gcra(default_rate=33, burst_ns=2 * S)
    assert limiter.try_take_many("a", 33, 0) == 33
    for taken in range(34, 67):
        assert limiter.try_take("a", 0)
        full_ns = -(-taken * S // 33)
        assert limiter.ready_at_ns("a", full_ns - 2 * S) == full_ns - 2 * S
        assert limiter.ready_at_ns("a", full_ns - 2 * S - 1) == full_ns - 2 * S


def test_nothing_is_kept_of_who_is_forgotten():
    limiter = Gcra(default_rate=33)
    assert limiter.try_take("a", 0)
    assert limiter._rounding
    assert limiter.cleanup_idle_users(S) == 1
    assert not limiter._rounding
