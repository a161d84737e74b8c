"""The flags: one group in `--help`, read before any model loads.

Values are checked by argparse itself (`type=`), which ends with exit status 2 and the error as
the last line of stderr. Rules across flags are checked by `fold`, right after parsing.

`fold` moves the limits into `additional_config["output_rate"]`, since that is a field of
EngineArgs: an API server's process copies it into its own EngineArgs before it has loaded any
plugin. `plugin` takes it out again before a VllmConfig, and with it a hash, is made.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from sched_adapter import assembly, parsing
from sched_adapter.config import OutputRateConfig

KEY: Final = "output_rate"
"""The key of the limits in `additional_config`."""

TITLE: Final = "OutputRateConfig"

# assembly.build's argument: the flag
FLAGS: Final = {
    "default_rate": "--default-user-output-tokens-per-second",
    "rates": "--user-output-tokens-per-second",
    "limiter": "--output-rate-limiter",
    "burst_ms": "--output-rate-burst-ms",
    "window_ms": "--output-rate-window-ms",
    "record": "--output-rate-record",
    "on_fault": "--output-rate-on-fault",
}

_READERS: Final[dict[str, tuple[Callable[[str], Any], str, str]]] = {
    "default_rate": (
        parsing.rate_text,
        "R",
        "Output tokens per second of each user without a rate of its own, shared by all of the "
        "user's requests. Unset: those users are not limited.",
    ),
    "rates": (
        parsing.rates_json,
        "JSON",
        'Output tokens per second by user, as a JSON object: {"user-a":100,"user-b":500}. A '
        "request names its user in vllm_xargs.output_rate_user; requests without a name share "
        "the user __anonymous__.",
    ),
    "limiter": (
        parsing.limiter_name,
        "NAME",
        "How the pace is kept: gcra (default), token_bucket, rolling_window, an installed "
        "backend's name, or module:Class.",
    ),
    "burst_ms": (
        parsing.burst,
        "MS",
        "Milliseconds of quota that a user may save up (default 100), or auto: gcra and "
        "token_bucket then keep the quota of a step that took longer.",
    ),
    "window_ms": (
        parsing.window,
        "MS",
        "The rolling window's window in milliseconds (default: the burst). 1000 is the strict "
        "'never more than N in any second'.",
    ),
    "record": (
        parsing.record_path,
        "PATH",
        "File for the engine's record of every dispatch, refund and wait, JSON lines, bounded "
        f"(also: the environment variable {assembly.RECORD_VARIABLE}).",
    ),
    "on_fault": (
        parsing.on_fault,
        "{open,closed}",
        "What users get while a backend that is not built in fails to answer: open (default), "
        "they go on without a limit, or closed, they wait.",
    ),
}


def add_arguments(parser: Any) -> None:
    """Add the flags to a parser, under one heading; a second call changes nothing."""
    if FLAGS["rates"] in parser._option_string_actions:
        return
    group = parser.add_argument_group(
        title=TITLE,
        description="Limits on each user's output tokens per second (vllm-output-rate).",
    )
    for part, (read, metavar, text) in _READERS.items():
        group.add_argument(
            FLAGS[part],
            type=_argument_type(read),
            default=None,
            metavar=metavar,
            help=text.replace("%", "%%"),
        )


def _argument_type(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            return read(text)
        except (ValueError, TypeError) as error:
            # argparse repeats only this exception's own words
            raise argparse.ArgumentTypeError(str(error)) from None

    convert.__name__ = read.__name__
    return convert


# What argparse would take for an option, and then complain that the value is missing.
_NEGATIVE: Final = re.compile(r"-(\.?[0-9]|inf|nan)", re.IGNORECASE)


def join_negative(argv: Sequence[str]) -> list[str]:
    """`--flag -1e5` as `--flag=-1e5`, so that the error can name the value."""
    joined: list[str] = []
    flags = set(FLAGS.values())
    for word in argv:
        if joined and joined[-1].replace("_", "-") in flags and _NEGATIVE.match(word):
            joined[-1] = f"{joined[-1]}={word}"
        else:
            joined.append(word)
    return joined


def fold(args: Any) -> OutputRateConfig | None:
    """Move the limits of parsed flags into `args.additional_config`; None if there are none.

    May be called again: what it moved before it finds there.

    Raises:
        ValueError: values that do not go together, or limits given in both places.
    """
    given: dict[str, Any] = {
        part: value
        for part, flag in FLAGS.items()
        if (value := getattr(args, _attribute(flag), None)) is not None
    }
    extra = getattr(args, "additional_config", None)
    present = extra.get(KEY) if isinstance(extra, dict) else None
    if not given and present is None:
        return None
    folded = assembly.build(**given, label=FLAGS.__getitem__) if given else None
    if present is not None and present != folded:
        if folded is not None:
            raise ValueError(
                f"{FLAGS[next(iter(given))]} and --additional-config with the key {KEY!r} are "
                "both given: give the limits in one place"
            )
        try:
            folded = assembly.from_mapping(present)
        except ValueError as error:
            raise ValueError(f"--additional-config {KEY}: {error}") from None
    if hasattr(args, "additional_config"):  # a copy: the default is one dict for all parsers
        args.additional_config = {**(extra or {}), KEY: folded}
    return folded


def _attribute(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")
