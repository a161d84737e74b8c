"""The limits put together: from values, each read by `parsing`, to one `OutputRateConfig`.

Here it is found whether the values go with each other and a limiter can be made from them. They
come from flags (`build`), from `additional_config` (`from_mapping`) and, for the record alone, from
the environment. An error is one line with the part, the value and the mend.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final

from sched_adapter import parsing
from sched_adapter.config import (
    AUTO_BURST_LIMITERS,
    DEFAULT_BURST_NS,
    DEFAULT_LIMITER,
    ON_FAULT,
    WINDOW_LIMITER,
    OutputRateConfig,
)
from sched_adapter.parsing import AUTO, NS_PER_MS, shown

RECORD_VARIABLE: Final = "VLLM_OUTPUT_RATE_RECORD"
"""Environment variable that stands in for the record's flag."""

# The names in `additional_config={"output_rate": {...}}`: short ones, and each flag's own.
_ALIASES: Final = {
    "default_user_output_tokens_per_second": "default_rate",
    "user_output_tokens_per_second": "rates",
    "output_rate_limiter": "limiter",
    "output_rate_burst_ms": "burst_ms",
    "output_rate_window_ms": "window_ms",
    "output_rate_record": "record",
    "output_rate_on_fault": "on_fault",
}
_NAMES: Final = (*_ALIASES.values(), "options")
_FIELDS: Final = {field.name for field in fields(OutputRateConfig)}


def from_mapping(data: object) -> OutputRateConfig:
    """The limits from `additional_config["output_rate"]`.

    Rates are numbers of tokens per second (a float is taken by its shortest decimal: 0.1 is a
    tenth), durations milliseconds. An `OutputRateConfig` passes as it is.

    Raises:
        ValueError: in one line that names the key, the value and the mend.
    """
    if isinstance(data, OutputRateConfig):
        return data
    if not isinstance(data, Mapping):
        raise ValueError(f"{shown(data)} is not a mapping: give one of {', '.join(_NAMES)}")
    if set(data) == _FIELDS:  # what dataclasses.asdict(engine_args) makes of an OutputRateConfig
        return OutputRateConfig(**data)
    given: dict[str, Any] = {}
    for key, value in data.items():
        name = _ALIASES.get(key, key)
        if name not in _NAMES:
            raise ValueError(f"{shown(key)} is unknown: give {', '.join(_NAMES)}")
        if name in given:
            raise ValueError(f"{shown(key)} is given twice: give {name} once")
        if value is not None:
            given[name] = _named(name, value)
    return build(**given)


def _named(name: str, value: object) -> Any:
    readers: dict[str, Any] = {
        "default_rate": parsing.rate_number,
        "rates": parsing.rates_mapping,
        "limiter": parsing.limiter_name,
        "burst_ms": parsing.burst,
        "window_ms": parsing.window,
        "record": parsing.record_path,
        "on_fault": parsing.on_fault,
    }
    if name not in readers:
        return value
    try:
        return readers[name](value)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name}: {error}") from None


def build(
    *,
    default_rate: Fraction | None = None,
    rates: Mapping[str, Fraction] | None = None,
    limiter: str | None = None,
    burst_ms: int | str | None = None,
    window_ms: int | None = None,
    record: str | None = None,
    on_fault: str | None = None,
    options: Mapping[str, object] = MappingProxyType({}),
    label: Callable[[str], str] = str,
) -> OutputRateConfig:
    """Put the parsed parts together; `burst_ms` and `window_ms` are in ns by now, or `AUTO`.

    Args:
        label: how an error calls a part, such as the flag that gave it.

    Raises:
        ValueError: parts that do not go together, or from which no limiter can be made.
    """
    chosen = DEFAULT_LIMITER if limiter is None else limiter
    automatic = burst_ms == AUTO
    if automatic and chosen not in AUTO_BURST_LIMITERS:
        raise ValueError(
            f"{label('burst_ms')} {AUTO}: the {chosen} limiter cannot do that: give "
            f"milliseconds, or {label('limiter')} {' or '.join(sorted(AUTO_BURST_LIMITERS))}"
        )
    if window_ms is not None and chosen != WINDOW_LIMITER:
        raise ValueError(
            f"{label('window_ms')} {window_ms / NS_PER_MS:g}: the {chosen} limiter has no window: "
            f"leave it out, or give {label('limiter')} {WINDOW_LIMITER}"
        )
    try:
        config = OutputRateConfig(
            default_rate=default_rate,
            rates=rates or {},
            limiter=chosen,
            burst_ns=burst_ms if isinstance(burst_ms, int) else DEFAULT_BURST_NS,
            window_ns=window_ms,
            options=options if not automatic else {**options, "auto_burst": True},
            record_path=record,
            on_fault=ON_FAULT[0] if on_fault is None else on_fault,
        )
        config.make_limiter()
    except Exception as error:  # a third party's backend may raise anything
        text = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{label('limiter')} {shown(chosen)}: {text}") from None
    return config


def with_environment(config: OutputRateConfig) -> OutputRateConfig:
    """`config`, its record taken from the environment where no flag gave one."""
    path = os.environ.get(RECORD_VARIABLE)
    if not path or config.record_path is not None:
        return config
    try:
        return replace(config, record_path=parsing.record_path(path))
    except ValueError as error:
        raise ValueError(f"{RECORD_VARIABLE}: {error}") from None
