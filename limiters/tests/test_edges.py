"""Edges that mutants of the code slipped through: each test was written for one of them."""

import pytest

from limiters import make_limiter

MS = 10**6
S = 10**9
BACKENDS = [
    ("gcra", {}),
    ("gcra", {"auto_burst": True}),
    ("token_bucket", {}),
    ("token_bucket", {"auto_burst": True}),
    ("rolling_window", {}),
]
every_backend = pytest.mark.parametrize(("name", "options"), BACKENDS, ids=str)


def takes(limiter, user, now_ns):
    """One by one, until one is denied."""
    return sum(limiter.try_take(user, now_ns) for _ in range(50))


@every_backend
@pytest.mark.parametrize("rate", [10, 33])
def test_who_idles_saves_up_a_full_quota_and_no_more(name, options, rate):
    limiter = make_limiter(name, default_rate=rate, **options)
    full = takes(limiter, "a", 0)
    assert full < 6
    for idle in (S, 7 * S, 3600 * S):
        assert takes(limiter, "a", idle) == full


@every_backend
def test_all_or_nothing_where_everybody_has_state(name, options):
    """The last one is out of quota: the others get back just what they had."""
    limiter = make_limiter(name, default_rate=40, **options)
    users = ["a", "b", "c"]
    for user in users:
        assert limiter.try_take(user, 0)
    limiter.try_take_many("c", 50, 0)
    before = [limiter.available(user, 0) for user in users]
    assert before[:2] != [0, 0]
    assert before[2] == 0
    assert limiter.try_take_all(users, 0) is False
    assert [limiter.available(user, 0) for user in users] == before
    assert limiter.try_take_all(users[:2], 0) is True
    assert [limiter.available(user, 0) for user in users] == [before[0] - 1, before[1] - 1, 0]


@every_backend
def test_all_or_nothing_where_one_is_no_user(name, options):
    limiter = make_limiter(name, default_rate=40, **options)
    for user in "ab":
        assert limiter.try_take(user, 0)
    before = [limiter.available(user, 0) for user in "ab"]
    with pytest.raises(TypeError, match="user must be a non-empty str, got 5"):
        limiter.try_take_all(["a", "b", 5], 0)
    assert [limiter.available(user, 0) for user in "ab"] == before


def test_a_take_is_forgotten_at_the_very_end_of_its_window():
    limiter = make_limiter("rolling_window", default_rate=10)
    assert limiter.try_take("a", 0)
    assert limiter.cleanup_idle_users(100 * MS - 1) == 0
    assert limiter.cleanup_idle_users(100 * MS) == 1
    assert len(limiter) == 0


@pytest.mark.parametrize(("name", "options"), BACKENDS[:4], ids=str)
def test_a_rounding_is_not_carried_past_a_full_quota(name, options):
    """1/33 s is no whole number of ns: who is full again starts anew from a whole one."""
    limiter = make_limiter(name, default_rate=33, burst_ns=0, **options)
    assert limiter.try_take("a", 0)
    again = limiter.ready_at_ns("a", 0)
    assert again == 30_303_031
    assert limiter.try_take("a", again)
    assert limiter.ready_at_ns("a", again) == 60_606_062


@every_backend
def test_a_rate_of_one_user_forgets_nobody_else(name, options):
    limiter = make_limiter(name, default_rate=10, rates={"c": 20}, **options)
    assert limiter.try_take("a", 0)
    limiter.set_rate("b", 5, 10 * S)
    limiter.unset_rate("c", 10 * S)
    assert len(limiter) == 1
    assert limiter.cleanup_idle_users(12 * S) == 1
