"""A full quota follows the step that has just ended, and only then."""

import pytest

from limiters import Limiter, make_limiter
from limiters.auto_burst import MAX_STEP_NS

MS = 10**6
S = 10**9


@pytest.fixture(params=["gcra", "token_bucket"])
def auto(request):
    return lambda rate, **settings: make_limiter(
        request.param, default_rate=rate, auto_burst=True, **settings
    )


def run(limiter: Limiter, streams: int, step_ns: int, seconds: int) -> int:
    taken = 0
    for now in range(0, seconds * S + 1, step_ns):
        if now:
            limiter.end_step(now - step_ns, now)
        taken += sum(limiter.try_take("a", now) for _stream in range(streams))
    return taken


def test_long_steps_lose_nothing(auto):
    plain = make_limiter("gcra", default_rate=10)
    assert run(plain, streams=3, step_ns=250 * MS, seconds=60) == 482
    assert 600 <= run(auto(10), streams=3, step_ns=250 * MS, seconds=60) <= 602
    assert 6000 <= run(auto(100), streams=20, step_ns=150 * MS, seconds=60) <= 6011


def test_short_steps_change_nothing(auto):
    plain = make_limiter("gcra", default_rate=10)
    assert run(plain, 3, 30 * MS, 60) == run(auto(10), 3, 30 * MS, 60)


def test_a_full_quota_at_the_end_of_a_step(auto):
    limiter = auto(10)
    limiter.end_step(0, S)
    assert limiter.available("a", S) == 11
    assert limiter.try_take_many("a", 100, S) == 11
    assert limiter.ready_at_ns("a", S) == S + 100 * MS, "the tolerance is still the burst"


def test_a_wait_is_no_step(auto):
    limiter = auto(10)
    limiter.end_step(0, S)
    assert limiter.available("a", S + 1) == 2
    assert limiter.available("a", 3600 * S) == 2


def test_a_jump_of_the_clock_is_one_longest_step(auto):
    limiter = auto(10)
    limiter.end_step(0, 3600 * S)
    assert limiter.available("a", 3600 * S) == 1 + 10 * MAX_STEP_NS // S


def test_a_long_step_does_not_forgive_debt(auto):
    limiter = auto(10)
    limiter.try_take_many("a", 2, 0)
    limiter.end_step(0, 300 * MS)
    assert limiter.try_take_many("a", 100, 300 * MS) == 3  # 0.3 s at 10/s, not 1 + 3


def test_cleanup_keeps_whom_the_long_step_still_tells_apart(auto):
    limiter = auto(10)
    limiter.try_take("early", -S)
    limiter.try_take("late", 100 * MS)  # its TAT is 200 ms, past the start and the burst
    limiter.end_step(0, S)
    assert limiter.cleanup_idle_users(S) == 1
    assert limiter.available("early", S) == 11
    assert limiter.available("late", S) == 10


def test_forgetting_never_lets_a_later_step_reach_behind_it(auto):
    """A step told late, begun before users were forgotten as full, must not fill them twice."""
    limiter = auto(10)
    limiter.try_take_many("a", 2, 0)
    limiter.cleanup_idle_users(S)
    limiter.end_step(0, S + 1)
    assert limiter.available("a", S + 1) == 2


def test_everybody_is_forgotten_in_the_end(auto):
    limiter = auto(10)
    limiter.end_step(0, S)
    limiter.try_take_many("a", 5, S)
    assert limiter.cleanup_idle_users(S + MAX_STEP_NS) == 1


def test_a_change_at_the_end_of_a_step_keeps_the_level(auto):
    limiter = auto(10)
    limiter.end_step(0, S)
    assert limiter.try_take_many("a", 100, S) == 11
    limiter.set_burst(2 * S, S)
    assert limiter.available("a", S) == 0
    assert limiter.available("new", S) == 11, "what a full quota was, not what it becomes"
    assert limiter.available("new", 2 * S) == 21


@pytest.mark.parametrize(
    ("start", "end", "error"), [(2, 1, ValueError), (0.0, 1, TypeError), (0, None, TypeError)]
)
def test_a_step_that_cannot_be(auto, start, end, error):
    limiter = auto(10)
    with pytest.raises(error, match=r"^(start|now)_ns must"):
        limiter.end_step(start, end)
    assert limiter.available("a", 1) == 2


def test_other_limiters_do_not_listen():
    for name in ("gcra", "token_bucket", "rolling_window"):
        limiter = make_limiter(name, default_rate=10, burst_ns=0)
        limiter.end_step(0, S)
        assert limiter.available("a", S) == 1
