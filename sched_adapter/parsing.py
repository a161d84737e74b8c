"""One value of the limits as somebody wrote it: in a flag, in JSON, as a Python object.

Each reader takes one value and answers it checked, rates exact and durations in ns, or raises an
error of one line: the value, and what to give instead. Which key or flag it was, the caller says.
Numbers are read by their text, so that 0.1 is a tenth and 1e400 is no infinity. What the values
come to together is `assembly`'s.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, NoReturn

from limiters import parse_rate
from sched_adapter import identity
from sched_adapter.config import ON_FAULT

AUTO: Final = "auto"
"""What a burst may be instead of milliseconds: then a longer step keeps its quota."""

NS_PER_MS: Final = 1_000_000
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


def rate_number(value: object) -> Fraction:
    """Tokens per second from a Python number, a float by its shortest decimal.

    Raises:
        ValueError, TypeError: as for `rate`; ValueError for a number in quotes.
    """
    if isinstance(value, str):
        raise ValueError(f"{shown(value)} is a string: give a number")
    return rate(value)


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


def rates_mapping(value: object) -> dict[str, Fraction]:
    """Tokens per second by user, from a mapping of Python numbers.

    Raises:
        ValueError: no mapping, a name that no request could carry, or a value that is not a
            number in range; a number in quotes is refused as in `rates_json`.
    """
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
    ns = int(Fraction(text) * NS_PER_MS)
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
