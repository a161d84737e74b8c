"""What a refusal says, word for word: which argument, which value, what it must be."""

import sys
import types

import pytest

from limiters import Limiter, make_limiter, parse_rate, registry
from limiters.checks import shown

BACKENDS = [
    ("gcra", {}),
    ("gcra", {"auto_burst": True}),
    ("token_bucket", {}),
    ("token_bucket", {"auto_burst": True}),
    ("rolling_window", {}),
]
NO_USER = "user must be a non-empty str, got 5"
NO_INT = "now_ns must be an int, got 1.5"

CALLS = [
    *((verb, (5, 0), TypeError, NO_USER) for verb in ("try_take", "refund", "available")),
    *((verb, ("new", 1.5), TypeError, NO_INT) for verb in ("try_take", "refund", "available")),
    ("ready_at_ns", (5, 0), TypeError, NO_USER),
    ("ready_at_ns", ("new", 1.5), TypeError, NO_INT),
    ("available", ("", 0), ValueError, "user must be a non-empty str, got ''"),
    ("available", ("new", True), TypeError, "now_ns must be an int, got True"),
    ("try_take_many", (5, 1, 0), TypeError, NO_USER),
    ("try_take_many", ("new", 1, 1.5), TypeError, NO_INT),
    ("try_take_many", ("new", -1, 0), ValueError, "count must be at least 0, got -1"),
    ("try_take_many", ("new", 1.5, 0), TypeError, "count must be an int, got 1.5"),
    ("try_take_all", ("ab", 0), TypeError, "users must be a list of users, got 'ab'"),
    ("try_take_all", ([5], 0), TypeError, NO_USER),
    ("try_take_all", (["new"], 1.5), TypeError, NO_INT),
    ("cleanup_idle_users", (1.5,), TypeError, NO_INT),
    ("rate_of", (5,), TypeError, NO_USER),
    ("set_rate", (5, 1, 0), TypeError, NO_USER),
    ("set_rate", ("new", 0, 0), ValueError, "user 'new': rate must be above zero, got 0"),
    ("set_rate", ("new", 1, 1.5), TypeError, NO_INT),
    ("unset_rate", (5, 0), TypeError, NO_USER),
    ("unset_rate", ("new", 1.5), TypeError, NO_INT),
    ("set_default_rate", (-1, 0), ValueError, "rate must be above zero, got -1"),
    ("set_default_rate", (1, 1.5), TypeError, NO_INT),
    ("set_burst", (-1, 0), ValueError, "burst_ns must be at least 0, got -1"),
    ("set_burst", (1.5, 0), TypeError, "burst_ns must be an int, got 1.5"),
    ("set_burst", (1, 1.5), TypeError, NO_INT),
]


def said(error, call, *arguments, **keywords):
    with pytest.raises(error) as refusal:
        call(*arguments, **keywords)
    assert type(refusal.value) is error
    return str(refusal.value)


@pytest.mark.parametrize(("name", "options"), BACKENDS, ids=lambda value: str(value))
def test_of_a_verb(name, options):
    limiter = make_limiter(name, default_rate=10, **options)
    for verb, arguments, error, text in CALLS:
        assert said(error, getattr(limiter, verb), *arguments) == text, (verb, arguments)


def test_of_an_instant_where_the_user_is_known():
    """Nothing that is quicker with users who have state lets a bad instant through."""
    limiter = make_limiter("gcra", default_rate=10)
    assert limiter.try_take("a", 0)
    assert said(TypeError, limiter.try_take_all, ["a"], 1.5) == NO_INT
    assert said(TypeError, limiter.try_take_many, "a", 1, 1.5) == NO_INT


def test_of_the_plain_loop():
    """What a backend inherits that writes none of its own."""
    limiter = make_limiter("gcra", default_rate=10)
    many = Limiter.try_take_many
    assert said(ValueError, many, limiter, "a", -1, 0) == "count must be at least 0, got -1"
    assert said(TypeError, many, limiter, "a", 1.5, 0) == "count must be an int, got 1.5"
    assert many(limiter, "a", 0, 0) == 0
    assert many(limiter, "a", 5, 0) == 2
    assert limiter.available("b", 0) == 2


def test_of_a_step():
    limiter = make_limiter("gcra", default_rate=10, auto_burst=True)
    assert said(TypeError, limiter.end_step, 1.5, 2) == "start_ns must be an int, got 1.5"
    assert said(TypeError, limiter.end_step, 1, 2.5) == "now_ns must be an int, got 2.5"
    text = "start_ns must not be after now_ns, got 2 after 1"
    assert said(ValueError, limiter.end_step, 2, 1) == text


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"default_rate": 0}, ValueError, "rate must be above zero, got 0"),
        ({"rates": "a"}, TypeError, "rates must map users to rates, got 'a'"),
        ({"rates": {5: 1}}, TypeError, NO_USER),
        ({"rates": {"a": -1}}, ValueError, "user 'a': rate must be above zero, got -1"),
        ({"rates": {"a": None}}, TypeError,
         "user 'a': rate must be a number of tokens per second, got None"),
        ({"burst_ns": -1}, ValueError, "burst_ns must be at least 0, got -1"),
        ({"burst_ns": "1"}, TypeError, "burst_ns must be an int, got '1'"),
        ({"name": "rolling_window", "window_ns": 0}, ValueError,
         "window_ns must be at least 1, got 0"),
        ({"name": "rolling_window", "window_ns": "1"}, TypeError,
         "window_ns must be an int, got '1'"),
    ],
)  # fmt: skip
def test_of_a_setting(settings, error, text):
    settings = {"name": "gcra", "default_rate": 10, **settings}
    assert said(error, make_limiter, **settings) == text


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (None, TypeError, "rate must be a number of tokens per second, got None"),
        ([1], TypeError, "rate must be a number of tokens per second, got [1]"),
        (float("inf"), ValueError, "rate must be finite, got inf"),
        ("1/0", ValueError, "rate must not divide by zero, got '1/0'"),
        ("x", ValueError,
         "rate must be a positive number such as \"20\", \"0.5\" or \"1/3\", got 'x'"),
        ("9" * 101, ValueError,
         f"rate must have at most 100 characters, got '{'9' * 56}..."),
        (10**13, ValueError,
         "rate must lie between 1e-9 and 1e12 tokens per second, got 10000000000000"),
        ("1e201", ValueError,
         "rate must lie between 1e-9 and 1e12 tokens per second, got '1e201'"),
        ("1/" + "9" * 98, ValueError,
         f"rate must lie between 1e-9 and 1e12 tokens per second, got '1/{'9' * 54}..."),
    ],
)  # fmt: skip
def test_of_a_rate(value, error, text):
    assert said(error, parse_rate, value) == text


def test_of_a_ratio_too_long():
    from fractions import Fraction

    value = 1 + Fraction(1, 10**100)
    text = "rate must be a ratio of at most 100 digits each, got "
    assert said(ValueError, parse_rate, value) == text + shown(value)
    assert parse_rate(1 + Fraction(1, 10**100 - 1)) > 1


def test_the_longest_text_that_is_read():
    text = "1." + "0" * 97 + "1"
    assert len(text) == 100
    assert parse_rate(text) > 1
    assert parse_rate("0" * 99 + "7") == 7


def named(monkeypatch, **classes):
    module = types.ModuleType("some_backend")
    vars(module).update(classes)
    monkeypatch.setitem(sys.modules, "some_backend", module)


class Unfinished(Limiter):
    def refund(self, user, now_ns):
        pass


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        (5, TypeError, "limiter must be named by a str, got 5"),
        ("a b:C", ValueError, "limiter 'a b:C' must read module:Class, got 'a b:C'"),
        ("m:C:D", ValueError, "limiter 'm:C:D' must read module:Class, got 'm:C:D'"),
        ("some_backend:Missing", ValueError,
         "limiter 'some_backend:Missing' cannot be loaded, AttributeError: "
         '"module \'some_backend\' has no attribute \'Missing\'"'),
        ("some_backend:Other", TypeError,
         "limiter 'some_backend:Other' must be a subclass of limiters.Limiter, got <class 'int'>"),
        ("some_backend:Unfinished", TypeError,
         "limiter 'some_backend:Unfinished' must implement "
         "__len__, available, cleanup_idle_users, ready_at_ns, try_take"),
    ],
)  # fmt: skip
def test_of_a_name(monkeypatch, name, error, text):
    named(monkeypatch, Other=int, Unfinished=Unfinished)
    assert said(error, make_limiter, name, default_rate=1) == text


def test_a_class_inside_a_class_is_found(monkeypatch):
    class Outer:
        Inner = registry.BUILT_IN["gcra"]

    named(monkeypatch, Outer=Outer)
    assert type(make_limiter("some_backend:Outer.Inner", default_rate=1)) is Outer.Inner


def test_of_two_entry_points_of_one_name(monkeypatch):
    from importlib.metadata import EntryPoint

    points = [EntryPoint("both", f"m:{name}", registry.ENTRY_POINT_GROUP) for name in "BA"]
    monkeypatch.setattr(registry, "entry_points", lambda **_: points)
    text = "limiter 'both' is ambiguous: m:A, m:B"
    assert said(ValueError, make_limiter, "both", default_rate=1) == text


def test_a_value_is_shown_on_one_line_and_cut():
    class Odd:
        def __repr__(self):
            raise RuntimeError

    class Lines:
        def __repr__(self):
            return "one\n  two\tthree"

    assert shown(Odd()) == "<Odd>"
    assert shown(Lines()) == "one two three"
    assert shown("x" * 58) == "'" + "x" * 58 + "'"
    assert shown("x" * 59) == "'" + "x" * 56 + "..."
    assert shown("\u00e9") == "'\\xe9'"


def test_a_repr_tells_the_settings():
    limiter = make_limiter("gcra", default_rate="1/3", rates={"a": 1}, burst_ns=7)
    limiter.try_take("a", 0)
    text = "<Gcra default 1/3/s, 1 own rates, burst 7 ns, 1 users with state>"
    assert repr(limiter) == text
    unlimited = make_limiter("rolling_window", default_rate=None, burst_ns=0)
    text = "<RollingWindow default unlimited, 0 own rates, burst 0 ns, 0 users with state>"
    assert repr(unlimited) == text


@pytest.mark.parametrize("name", ["gcra", "token_bucket", "rolling_window"])
def test_the_burst_is_a_tenth_of_a_second_unless_given(name):
    assert make_limiter(name, default_rate=1).burst_ns == 10**8
    assert registry.BUILT_IN[name](default_rate=1).burst_ns == 10**8
