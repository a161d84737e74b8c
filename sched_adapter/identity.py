"""Who a request belongs to.

A client names the user in `vllm_xargs.output_rate_user`, which vLLM carries as
`SamplingParams.extra_args`. Nothing here authenticates: a gateway in front has to write the
field. The OpenAI field `user` plays no part.
"""

from __future__ import annotations

from typing import Any, Final

FIELD: Final = "output_rate_user"
"""Key of the user's name in `SamplingParams.extra_args` (`vllm_xargs` over HTTP)."""

ANONYMOUS: Final = "__anonymous__"
"""The one user that all requests without a name share."""

MAX_LENGTH: Final = 256
"""Longest accepted name, in characters (code points)."""

NAME_MEND: Final = f"give a string of 1 to {MAX_LENGTH} printable characters"
MEND: Final = f"{NAME_MEND}, or leave the field out"


def is_valid(value: object) -> bool:
    """Whether `value` names a user: a str of 1 to 256 printable characters.

    Printable as `str.isprintable` has it: no control characters, line breaks, unpaired
    surrogates; of the white space only the plain blank.
    """
    return isinstance(value, str) and 0 < len(value) <= MAX_LENGTH and value.isprintable()


def check(value: object) -> None:
    """Raise ValueError, in one line that names the fault and the mend, unless `value` is a name.

    The line never repeats a value at length: it may be huge or hostile to a terminal.
    """
    if is_valid(value):
        return
    if not isinstance(value, str):
        fault = f"a user's name cannot be of type {type(value).__name__}"
    elif not value:
        fault = "a user's name cannot be empty"
    elif len(value) > MAX_LENGTH:
        fault = f"a user's name cannot have {len(value)} characters"
    else:
        at = next(i for i, char in enumerate(value) if not char.isprintable())
        fault = f"a user's name cannot hold {value[at]!a} (character {at + 1})"
    raise ValueError(f"{fault}: {MEND}")


def user_of(request: Any) -> str:
    """The user of a `vllm.v1.request.Request`; never raises.

    The front end refuses bad names (`doors`). One that got past it all the same must not
    cost the engine, and with it every other request, an exception: it counts as anonymous.
    """
    params = getattr(request, "sampling_params", None)
    extra = getattr(params, "extra_args", None)
    if not isinstance(extra, dict):
        return ANONYMOUS
    value = extra.get(FIELD)
    # `type() is str` keeps out subclasses with a strange __hash__ or __eq__.
    return value if type(value) is str and is_valid(value) else ANONYMOUS
