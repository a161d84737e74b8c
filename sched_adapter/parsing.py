"""Limits as people write them: flags, JSON, `additional_config`.

Every error is one line with the value and what to give instead; the caller names the flag.
Numbers are read by their text, so that 0.1 is a tenth and 1e400 is no infinity.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final, NoReturn

from limiters import parse_rate
from sched_adapter import identity
from sched_adapter.config import (
    AUTO_BURST_LIMITERS,
    DEFAULT_BURST_NS,
    DEFAULT_LIMITER,
    ON_FAULT,
    WINDOW_LIMITER,
    OutputRateConfig,
)

RECORD_VARIABLE: Final = "VLLM_OUTPUT_RATE_RECORD"
"""Environment variable that stands in for the record's flag."""

AUTO: Final = "auto"
_NS_PER_MS: Final = 1_000_000
_MILLISECONDS: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?", re.ASCII)
_MS_MEND: Final = "plain milliseconds such as 100 or 2.5, with at most six decimals"


def shown(value: object) -> str:
    """`value` in one line of bounded length and plain ASCII, for an error's text."""
    try:
        text = ascii(value)
    except Exception:  # a foreign __repr__, or an int beyond Python's limit of digits
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 80 else f"{text[:77]}..."


def rate(value: object) -> Fraction:
    """Tokens per second from a flag's text or from a Python number.

    Raises:
        ValueError, TypeError: not a positive, finite number in the range of `limiters`.
    """
    return parse_rate(value)  # type: ignore[arg-type]


def rate_text(text: str) -> Fraction:
    """Tokens per second from a flag's text; ValueError as for `rate`."""
    return rate(text.strip(" "))


@dataclass(frozen=True)
class _Number:
    """A JSON number, kept as it was written."""

    text: str


def rates_json(text: str) -> dict[str, Fraction]:
    """Tokens per second by user, from a JSON object such as {"a":100,"b":0.5}.

    Raises:
        ValueError: no JSON object, a user twice, a name that no request could carry, or a
            value that is not a number in range. A number in quotes is refused: it is more
            often a quoting mistake of a shell or a template than meant.
    """
    mend = 'give a JSON object such as {"user-a":100,"user-b":0.5}'
    try:
        data = json.loads(
            text,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_no_constant,
            object_pairs_hook=_no_duplicates,
        )
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{shown(text)} is not JSON ({error.msg}, column {error.pos + 1}): {mend}"
        ) from None
    except RecursionError:
        raise ValueError(f"{shown(text)} is nested too deeply: {mend}") from None
    if not isinstance(data, dict):
        raise ValueError(f"{shown(text)} is not a JSON object: {mend}")
    return {_user(user): _json_rate(user, value) for user, value in data.items()}


def _json_rate(user: str, value: object) -> Fraction:
    if not isinstance(value, _Number):
        if isinstance(value, dict) and value:
            mend = "give a number; a name with a dot in it needs the flag's JSON form"
        else:
            mend = "give a number, without quotes"
        raise ValueError(f"the rate of user {shown(user)} cannot be {_as_json(value)}: {mend}")
    return _rate_of_user(user, value.text)


def _rate_of_user(user: str, value: object) -> Fraction:
    try:
        return rate(value)
    except (ValueError, TypeError) as error:
        raise ValueError(f"user {shown(user)}: {error}") from None


def _user(name: object) -> str:
    try:
        identity.check(name)
    except ValueError as error:
        raise ValueError(str(error).replace(identity.MEND, identity.NAME_MEND)) from None
    assert isinstance(name, str)
    return name


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a rate: give a positive number of tokens per second")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            raise ValueError(f"user {shown(key)} is given twice: give each user one rate")
        seen[key] = value
    return seen


def _as_json(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return shown(value).replace("'", '"')
    return "a list" if isinstance(value, list) else "an object"


def milliseconds(value: object, *, zero: bool) -> int:
    """Nanoseconds from milliseconds, given as a flag's text or as a Python number.

    Raises:
        ValueError: anything but a plain decimal number of whole nanoseconds; 0 unless `zero`.
    """
    try:
        text = str(value)
    except Exception:  # as for `shown`
        text = ""
    if not _MILLISECONDS.fullmatch(text):
        raise ValueError(f"{shown(value)} is not a duration: give {_MS_MEND}")
    ns = int(Fraction(text) * _NS_PER_MS)
    if ns == 0 and not zero:
        raise ValueError(f"{shown(value)} is no duration: give more than 0 milliseconds")
    return ns


def burst(value: object) -> int | str:
    """The burst in ns from milliseconds, or `AUTO`; ValueError as for `milliseconds`."""
    if value == AUTO:
        return AUTO
    try:
        return milliseconds(value, zero=True)
    except ValueError as error:
        raise ValueError(f"{error}, or {AUTO}") from None


def window(value: object) -> int:
    """The rolling window in ns from milliseconds; ValueError as for `milliseconds`."""
    return milliseconds(value, zero=False)


def limiter_name(value: object) -> str:
    """A backend's name; whether it exists is known once the whole configuration is made."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError(f"{shown(value)} is not a backend: give gcra, token_bucket, ...")
    return value


def record_path(value: object) -> str:
    """Absolute path of the record, from a flag; ValueError if no file can be made there."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError(f"{shown(value)} is not a path: give the name of a file")
    path = os.path.abspath(value)
    if os.path.isdir(path) or not os.path.isdir(os.path.dirname(path)):
        raise ValueError(f"{shown(value)} cannot be a record: give a file in an existing folder")
    return path


def on_fault(value: object) -> str:
    """The policy for a backend that fails: `open` or `closed`; ValueError for anything else."""
    if not isinstance(value, str) or value not in ON_FAULT:
        raise ValueError(f"{shown(value)} is no policy: give {' or '.join(ON_FAULT)}")
    return value


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
        "default_rate": _python_rate,
        "rates": _python_rates,
        "limiter": limiter_name,
        "burst_ms": burst,
        "window_ms": window,
        "record": record_path,
        "on_fault": on_fault,
    }
    if name not in readers:
        return value
    try:
        return readers[name](value)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name}: {error}") from None


def _python_rate(value: object) -> Fraction:
    if isinstance(value, str):
        raise ValueError(f"{shown(value)} is a string: give a number")
    return rate(value)


def _python_rates(value: object) -> dict[str, Fraction]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{shown(value)} is not a mapping: give a rate for each user")
    rates = {}
    for user, number in value.items():
        name = _user(user)
        if isinstance(number, str):
            raise ValueError(
                f"the rate of user {shown(user)} cannot be the string {shown(number)}: "
                "give a number, without quotes"
            )
        rates[name] = _rate_of_user(name, number)
    return rates


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
            f"{label('window_ms')} {window_ms / _NS_PER_MS:g}: the {chosen} limiter has no window: "
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
        return replace(config, record_path=record_path(path))
    except ValueError as error:
        raise ValueError(f"{RECORD_VARIABLE}: {error}") from None
