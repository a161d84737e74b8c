"""The definitions that judge others, held to figures worked out by hand."""

import json
import sys
from fractions import Fraction
from importlib.resources import files

import pytest

from conformance.level1.definitions import GcraDefinition, WindowDefinition

MS = 10**6
S = 10**9


def gcra(rate=10, **more):
    return GcraDefinition(rate, more.pop("rates", {}), more.pop("burst", 100 * MS), **more)


def window(rate=10, window_ns=None, burst=100 * MS):
    return WindowDefinition(rate, {}, burst, window_ns)


def cases(name):
    return json.loads(files("conformance.level1").joinpath(name).read_text())["cases"]


@pytest.mark.parametrize(
    ("case", "make"),
    [
        *((case, GcraDefinition) for case in cases("limiter_cases.json")),
        *((case, WindowDefinition) for case in cases("window_cases.json")),
    ],
    ids=lambda value: value["id"] if isinstance(value, dict) else value.__name__,
)
def test_the_examples(case, make):
    window_ms = case.get("window_ms")
    more = [window_ms and window_ms * MS] if make is WindowDefinition else []
    one = make(case["rate"], {}, case["burst_ms"] * MS, *more)
    for verb, now, user, expected in case["ops"]:
        if verb == "users":
            assert len(one) == expected
        elif verb == "cleanup_idle_users":
            one.cleanup_idle_users(now)
        elif (answer := getattr(one, verb)(user, now)) != expected and expected is not None:
            pytest.fail(f"{verb} at {now}: {answer}")


def test_a_cut_waits_for_one_token_at_the_new_rate():
    one = gcra(1000)
    assert one.try_take_many("a", 1_000, 0) == 101
    one.set_rate("a", 1, 0)
    assert one.ready_at_ns("a", 0) == S


def test_a_raise_keeps_the_tenth_of_a_token():
    one = gcra(1)
    assert one.try_take_many("a", 9, 0) == 1  # a full quota is 1.1
    one.set_rate("a", 1000, 0)
    assert one.ready_at_ns("a", 0) == 900_000


def test_a_raise_gives_a_stranger_the_old_full_quota():
    one = gcra(10)
    one.set_default_rate(100, 0)
    assert one.available("stranger", 0) == 2
    assert one.available("stranger", 89 * MS) == 10
    assert one.available("stranger", 90 * MS) == one.available("stranger", S) == 11


def test_half_a_token():
    one = gcra(10)
    assert one.try_take_many("a", 9, 0) == 2
    one.set_rate("a", 20, 50 * MS)
    assert one.ready_at_ns("a", 50 * MS) == 75 * MS


def test_a_burst_is_filled_not_given():
    one = gcra(10)
    one.set_burst(S, 0)
    assert one.available("a", 0) == 2
    assert one.available("a", 900 * MS) == 11
    one.set_burst(0, S)
    assert one.available("a", S) == 1


def test_a_level_is_rounded_down_to_whole_units():
    one = gcra(3)
    assert one.try_take_many("a", 9, 0) == 1  # a full quota is 1.3
    one.set_rate("a", 7, 0)
    assert one.levels["a"].tokens == Fraction(3, 10)  # 3/10 is whole in units of 1/10^9
    one.set_rate("a", Fraction(10**9, 3), 0)  # units of 1/3 token
    assert one.levels["a"].tokens == 0


def test_a_window_keeps_its_log():
    one = window(1000)
    assert one.try_take_many("a", 1_000, 0) == 100
    one.set_rate("a", 1, 0)
    assert one.ready_at_ns("a", 0) == S
    one.set_rate("a", 2000, 1)
    assert one.available("a", 1) == 100


def test_a_quota_that_follows_the_step():
    one = gcra(10, auto=True)
    one.end_step(0, S)
    assert one.available("a", S) == 11
    assert one.available("a", S + 1) == 2
    one.end_step(0, 3600 * S)
    assert one.available("a", 3600 * S) == 101


def test_unlimited():
    for one in (gcra(None), window(None)):
        assert one.available("a", 0) == sys.maxsize
        assert one.try_take_many("a", 50, 0) == 50
        assert one.ready_at_ns("a", 7) == 7
        assert len(one) == 0
