import pytest

from limiters import RollingWindow

MS = 10**6
S = 10**9


def test_never_more_than_n_in_any_second():
    limiter = RollingWindow(default_rate=20, window_ns=S)
    assert limiter.try_take_many("a", 100, 0) == 20
    assert not limiter.try_take("a", S - 1)
    assert limiter.ready_at_ns("a", 1) == S
    assert limiter.try_take_many("a", 100, S) == 20


def test_the_window_is_half_open():
    limiter = RollingWindow(default_rate=2, window_ns=S)
    assert limiter.try_take("a", 0)
    assert limiter.try_take("a", 400 * MS)
    assert not limiter.try_take("a", S - 1)
    assert limiter.try_take("a", S)
    assert limiter.ready_at_ns("a", S) == 1400 * MS


def test_the_window_is_cut_to_whole_tokens():
    """At 33/s 100 ms hold 3.3 tokens: 3 in 3/33 s, to the ns above."""
    limiter = RollingWindow(default_rate=33)
    assert limiter.try_take_many("a", 9, 0) == 3
    assert limiter.ready_at_ns("a", 0) == 90_909_091


@pytest.mark.parametrize("rate", [10, 20, 100])
def test_it_does_not_make_up_for_late_steps(rate):
    limiter = RollingWindow(default_rate=rate)
    steps = range(0, 120 * S, 30 * MS)
    taken = sum(limiter.try_take_many("a", 10**6, now) for now in steps)
    assert taken / 120 / rate == pytest.approx(100 / 120, abs=0.001)


def test_a_refund_takes_the_newest_entry_away():
    limiter = RollingWindow(default_rate=2, window_ns=S)
    limiter.try_take("a", 0)
    limiter.try_take("a", 300 * MS)
    limiter.refund("a", 300 * MS)
    assert limiter.try_take("a", 400 * MS)
    assert limiter.ready_at_ns("a", 400 * MS) == S


def test_time_that_steps_back_counts_every_later_take():
    limiter = RollingWindow(default_rate=2, window_ns=S)
    limiter.try_take_many("a", 2, 0)
    limiter.try_take_many("a", 1, 2 * S)
    assert not limiter.try_take("a", S - 1), "the takes at 0 and at 2 s both lie in reach"
    assert limiter.try_take("a", S)
    assert not limiter.try_take("a", 2 * S - 1)


def test_a_take_after_time_stepped_back_finds_its_place_in_the_log():
    limiter = RollingWindow(default_rate=3, window_ns=S)
    for now in (S, S // 2, S):
        assert limiter.try_take("a", now)
    assert limiter.ready_at_ns("a", S) == S // 2 + S
    limiter.refund("a", S // 2)
    assert limiter.try_take_many("a", 5, S) == 1
    assert limiter.ready_at_ns("a", S) == 2 * S


def test_old_takes_settle_what_may_be_taken_if_time_steps_back():
    limiter = RollingWindow(default_rate=2, window_ns=S)
    for now in (0, 0, 10 * S, 10 * S, 20 * S):
        assert limiter.try_take("a", now)
    assert not limiter.try_take("a", 10 * S + S // 2)


def test_a_change_keeps_the_log():
    limiter = RollingWindow(default_rate=1000)
    assert limiter.try_take_many("a", 10**6, 0) == 100
    limiter.set_default_rate(10, 0)
    limiter.set_default_rate(1000, 0)
    assert not limiter.try_take("a", 0)
    limiter.set_default_rate(10, 0)
    assert limiter.ready_at_ns("a", 0) == 100 * MS


def test_the_window_follows_the_burst_unless_it_is_given():
    follows, fixed = RollingWindow(default_rate=10), RollingWindow(default_rate=10, window_ns=S)
    for limiter in (follows, fixed):
        limiter.set_burst(500 * MS, 0)
    assert follows.available("a", 0) == 5
    assert fixed.available("a", 0) == 10


def test_a_billion_tokens_cost_no_memory():
    limiter = RollingWindow(default_rate=10**9)
    assert limiter.try_take_many("a", 10**9, 0) == 10**8
    assert limiter.ready_at_ns("a", 0) == 100 * MS


def test_the_log_of_a_steady_user_stays_short():
    limiter = RollingWindow(default_rate=100)
    for now in range(0, 100 * S, 10 * MS):
        limiter.try_take("a", now)
    assert len(limiter._logs["a"]) <= 21


def test_takes_of_one_instant_are_one_entry_and_a_refunded_one_is_none():
    """Memory is by instants: a flood in one step, or refunds step after step, must not add up."""
    limiter = RollingWindow(default_rate=1000)
    for now in (0, MS):
        for _ in range(3):
            limiter.try_take("a", now)
    log = limiter._logs["a"]
    assert log._instants == [0, MS]
    limiter.try_take("a", 2 * MS)
    limiter.refund("a", 2 * MS)
    assert log._instants == [0, MS]


def test_a_window_cut_to_whole_tokens_still_remembers_all_of_it():
    """At 2.5/s a window of 1 s is 2 tokens in 0.8 s; at 2/s it is 2 tokens in the whole second."""
    limiter = RollingWindow(default_rate=2.5, window_ns=S)
    assert limiter.try_take_many("a", 2, 0) == 2
    assert limiter.cleanup_idle_users(900 * MS) == 0
    limiter.set_default_rate(2, 900 * MS)
    assert limiter.available("a", 900 * MS) == 0


def test_a_cut_and_a_raise_mint_nothing():
    """At 1.5/s one take in 0.667 s is let through; the hundred before are still in the second."""
    limiter = RollingWindow(default_rate=1000, window_ns=S)
    assert limiter.try_take_many("a", 100, 0) == 100
    limiter.set_default_rate(1.5, 0)
    assert limiter.try_take("a", 700 * MS)
    limiter.set_default_rate(1000, 700 * MS)
    assert limiter.available("a", 700 * MS) == 1000 - 101
