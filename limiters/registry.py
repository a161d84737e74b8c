"""Limiters by name: the built-in ones, entry points, and `module:Class`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points

from .checks import shown
from .gcra import Gcra
from .interface import DEFAULT_BURST_NS, Limiter
from .rate import RateLike

ENTRY_POINT_GROUP = "vllm_output_rate.limiters"

_SETTINGS = {"self", "default_rate", "rates", "burst_ns"}

BUILT_IN: dict[str, Callable[..., Limiter]] = {"gcra": Gcra}


def make_limiter(
    name: str,
    *,
    default_rate: RateLike | None,
    rates: Mapping[str, RateLike] | None = None,
    burst_ns: int = DEFAULT_BURST_NS,
    **options: object,
) -> Limiter:
    """Make the limiter of this name.

    `name` is `gcra`, `token_bucket`, `rolling_window`, the name of an entry point in the group
    `vllm_output_rate.limiters`, or `module:Class`. Rates are in tokens per second; without a
    default rate, users without a rate of their own are unlimited. `options` are the backend's own.

    Raises ValueError for an unknown name or option, and TypeError or ValueError for a bad value.
    """
    make = _find(name)
    _check_options(name, make, options)
    limiter = make(default_rate=default_rate, rates=rates, burst_ns=burst_ns, **options)
    if not isinstance(limiter, Limiter):
        raise TypeError(f"limiter {shown(name)} must be a limiters.Limiter, got {shown(limiter)}")
    return limiter


def backend_names() -> list[str]:
    """The names that need no module: built in, then installed by entry point."""
    installed = {point.name for point in entry_points(group=ENTRY_POINT_GROUP)}
    return [*BUILT_IN, *sorted(installed - BUILT_IN.keys())]


def _find(name: str) -> Callable[..., Limiter]:
    if not isinstance(name, str):
        raise TypeError(f"limiter must be named by a str, got {shown(name)}")
    if name in BUILT_IN:
        return BUILT_IN[name]
    if ":" in name:
        return _load(name, EntryPoint(name=name, value=name, group=ENTRY_POINT_GROUP))
    points = list(entry_points(group=ENTRY_POINT_GROUP, name=name))
    if not points:
        known = ", ".join(backend_names())
        raise ValueError(f"unknown limiter {shown(name)}: choose {known} or module:Class")
    targets = {point.value for point in points}
    if len(targets) > 1:
        raise ValueError(f"limiter {shown(name)} is ambiguous: {', '.join(sorted(targets))}")
    return _load(name, points[0])


def _load(name: str, point: EntryPoint) -> Callable[..., Limiter]:
    module, _, attribute = point.value.partition(":")
    parts = [*module.split("."), *attribute.split(".")]
    if not all(part.isidentifier() for part in parts):
        raise ValueError(f"limiter {shown(name)} must read module:Class, got {shown(point.value)}")
    try:
        found = point.load()
    except Exception as error:  # whatever a foreign module raises while it is imported
        why = f"{type(error).__name__}: {shown(str(error))}"
        raise ValueError(f"limiter {shown(name)} cannot be loaded, {why}") from error
    if not (isinstance(found, type) and issubclass(found, Limiter)):
        raise TypeError(f"limiter {shown(name)} must be a subclass of limiters.Limiter")
    return found


def _check_options(name: str, make: Callable[..., Limiter], options: Mapping[str, object]) -> None:
    parameters = inspect.signature(make).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = {parameter.name for parameter in parameters} - _SETTINGS
    for option in options:
        if option not in known:
            has = f"it has {', '.join(sorted(known))}" if known else "it has none"
            raise ValueError(f"limiter {shown(name)} has no option {shown(option)}: {has}")
