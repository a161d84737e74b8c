"""Limiters by name: the built-in ones, entry points, and `module:Class`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from .auto_burst import AutoBurstGcra, AutoBurstTokenBucket
from .checks import shown
from .gcra import Gcra
from .interface import DEFAULT_BURST_NS, Limiter
from .rate import RateLike
from .rolling_window import RollingWindow
from .token_bucket import TokenBucket

ENTRY_POINT_GROUP = "vllm_output_rate.limiters"

_SETTINGS = {"default_rate", "rates", "burst_ns"}

BUILT_IN: dict[str, type[Limiter]] = {
    "gcra": Gcra,
    "token_bucket": TokenBucket,
    "rolling_window": RollingWindow,
}

AUTO_BURST: dict[type[Limiter], type[Limiter]] = {
    Gcra: AutoBurstGcra,
    TokenBucket: AutoBurstTokenBucket,
}
"""What `auto_burst=True` makes of a backend that has this option."""


def make_limiter(
    name: str,
    *,
    default_rate: RateLike | None,
    rates: Mapping[str, RateLike] | None = None,
    burst_ns: int = DEFAULT_BURST_NS,
    **options: Any,
) -> Limiter:
    """Make the limiter of this name.

    `name` is `gcra`, `token_bucket`, `rolling_window`, the name of an entry point in the group
    `vllm_output_rate.limiters`, or `module:Class`. Rates are in tokens per second; without a
    default rate, users without a rate of their own are unlimited. `options` are the backend's own.

    Raises ValueError for an unknown name or option, and TypeError or ValueError for a bad value.
    """
    backend = _find(name)
    _check_options(name, backend, options)
    if backend in AUTO_BURST:
        auto_burst = options.pop("auto_burst", False)
        if not isinstance(auto_burst, bool):
            raise TypeError(f"auto_burst must be True or False, got {shown(auto_burst)}")
        backend = AUTO_BURST[backend] if auto_burst else backend
    return backend(default_rate=default_rate, rates=rates, burst_ns=burst_ns, **options)


def backend_names() -> list[str]:
    """The names that need no module: built in, then installed by entry point."""
    installed = {point.name for point in entry_points(group=ENTRY_POINT_GROUP)}
    return [*BUILT_IN, *sorted(installed - BUILT_IN.keys())]


def _find(name: str) -> type[Limiter]:
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


def _load(name: str, point: EntryPoint) -> type[Limiter]:
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
        raise TypeError(
            f"limiter {shown(name)} must be a subclass of limiters.Limiter, got {shown(found)}"
        )
    if inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise TypeError(f"limiter {shown(name)} must implement {missing}")
    return found


def _check_options(name: str, backend: type[Limiter], options: Mapping[str, object]) -> None:
    parameters = inspect.signature(backend).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return  # the backend checks them itself
    known = {parameter.name for parameter in parameters} - _SETTINGS
    if backend in AUTO_BURST:
        known.add("auto_burst")
    for option in options:
        if option not in known:
            has = f"it has {', '.join(sorted(known))}" if known else "it has none"
            raise ValueError(f"limiter {shown(name)} has no option {shown(option)}: {has}")
