import sys
import types
from importlib.metadata import EntryPoint

import pytest

from limiters import Gcra, Limiter, RollingWindow, TokenBucket, make_limiter, registry
from limiters.auto_burst import AutoBurstGcra, AutoBurstTokenBucket

from .test_interface import OnePerNs


class Fussy(OnePerNs):
    def __init__(self, *, colour="red", **settings):
        super().__init__(**settings)
        self.colour = colour


class Choosy(OnePerNs):
    def __init__(self, *, default_rate, rates=None, burst_ns=0, shade=0, colour="red"):
        super().__init__(default_rate=default_rate, rates=rates, burst_ns=burst_ns)


class Bare(OnePerNs):
    def __init__(self, *, default_rate, rates=None, burst_ns=0):
        super().__init__(default_rate=default_rate, rates=rates, burst_ns=burst_ns)


class Plain(OnePerNs):
    def __init__(self, *, default_rate, rates=None, burst_ns=0, size=1):
        super().__init__(default_rate=default_rate, rates=rates, burst_ns=burst_ns)
        self.size = size


NO_LIMITER = "a str"


@pytest.fixture
def installed(monkeypatch):
    points = []

    def entry_points(*, group, name=None):
        assert group == "vllm_output_rate.limiters"
        return [point for point in points if name in (None, point.name)]

    monkeypatch.setattr(registry, "entry_points", entry_points)
    return lambda name, value: points.append(EntryPoint(name, value, registry.ENTRY_POINT_GROUP))


@pytest.mark.parametrize(
    ("name", "options", "backend"),
    [
        ("gcra", {}, Gcra),
        ("gcra", {"auto_burst": False}, Gcra),
        ("gcra", {"auto_burst": True}, AutoBurstGcra),
        ("token_bucket", {}, TokenBucket),
        ("token_bucket", {"auto_burst": True}, AutoBurstTokenBucket),
        ("rolling_window", {}, RollingWindow),
        ("rolling_window", {"window_ns": 10**9}, RollingWindow),
        (f"{__name__}:Plain", {"size": 2}, Plain),
        ("limiters.gcra:Gcra", {"auto_burst": True}, AutoBurstGcra),
    ],
)
def test_makes_it_by_name(name, options, backend):
    made = make_limiter(name, default_rate=3, rates={"a": 4}, burst_ns=7, **options)
    assert type(made) is backend
    assert (made.default_rate, made.rate_of("a"), made.burst_ns) == (3, 4, 7)


def test_an_option_arrives():
    assert make_limiter(f"{__name__}:Plain", default_rate=1, size=2).size == 2
    window = make_limiter("rolling_window", default_rate=5, window_ns=10**9)
    assert window.available("a", 0) == 5


def test_an_entry_point(installed):
    installed("theirs", f"{__name__}:Fussy")
    assert make_limiter("theirs", default_rate=1, colour="blue").colour == "blue"
    assert registry.backend_names() == ["gcra", "token_bucket", "rolling_window", "theirs"]


def test_a_built_in_name_cannot_be_taken(installed):
    installed("gcra", f"{__name__}:Fussy")
    assert type(make_limiter("gcra", default_rate=1)) is Gcra


def test_the_same_entry_point_twice_is_one(installed):
    for _ in range(2):
        installed("theirs", f"{__name__}:Plain")
    assert type(make_limiter("theirs", default_rate=1)) is Plain


def refused(name, error=ValueError, **options):
    with pytest.raises(error) as refusal:
        make_limiter(name, default_rate=1, **options)
    message = str(refusal.value)
    assert "\n" not in message
    return message


def test_an_unknown_name(installed):
    installed("theirs", f"{__name__}:Plain")
    assert refused("gcr") == (
        "unknown limiter 'gcr': choose gcra, token_bucket, rolling_window, theirs or module:Class"
    )
    assert "unknown limiter ''" in refused("")
    assert "must be named by a str, got 5" in refused(5, TypeError)


def test_an_ambiguous_name(installed):
    installed("theirs", f"{__name__}:Plain")
    installed("theirs", f"{__name__}:Fussy")
    assert "is ambiguous" in refused("theirs")


@pytest.mark.parametrize(
    ("name", "error", "part"),
    [
        ("no_such_module_here:X", ValueError, "cannot be loaded, ModuleNotFoundError: "),
        (f"{__name__}:Nothing", ValueError, "cannot be loaded, AttributeError: "),
        (f"{__name__}:NO_LIMITER", TypeError, "must be a subclass of limiters.Limiter"),
        (f"{__name__}:Plain:more", ValueError, "must read module:Class"),
        ("a b:C", ValueError, "must read module:Class"),
        (":", ValueError, "must read module:Class"),
        ("x:", ValueError, "must read module:Class"),
        (":X", ValueError, "must read module:Class"),
        ("builtins:dict", TypeError, "must be a subclass of limiters.Limiter"),
    ],
)
def test_what_cannot_be_loaded(name, error, part):
    assert part in refused(name, error)


def test_an_installed_name_that_cannot_be_loaded_is_named(installed):
    installed("theirs", "no_such_module_here:X")
    assert refused("theirs").startswith("limiter 'theirs' cannot be loaded, ModuleNotFoundError: ")


def test_a_module_that_fails_in_many_lines(monkeypatch):
    broken = types.ModuleType("broken_backend")
    broken.__getattr__ = lambda name: (_ for _ in ()).throw(RuntimeError("one\ntwo"))
    monkeypatch.setitem(sys.modules, "broken_backend", broken)
    assert "RuntimeError" in refused("broken_backend:X")


def test_unknown_options():
    assert refused("gcra", colour=1) == "limiter 'gcra' has no option 'colour': it has auto_burst"
    assert refused("rolling_window", auto_burst=True) == (
        "limiter 'rolling_window' has no option 'auto_burst': it has window_ns"
    )
    assert refused(f"{__name__}:Choosy", size=1).endswith(": it has colour, shade")
    assert refused(f"{__name__}:Bare", colour=1).endswith(": it has none")


def test_bad_options():
    assert refused("gcra", TypeError, auto_burst=1) == "auto_burst must be True or False, got 1"


def test_an_abstract_class_is_refused_in_one_line():
    assert "must implement" in refused("limiters:Limiter", TypeError)


def test_every_built_in_is_a_limiter():
    assert all(issubclass(backend, Limiter) for backend in registry.BUILT_IN.values())
