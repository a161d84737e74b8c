"""What a run tries: levels and backends, by the plugin's options. Errors are usage errors."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pytest

from conformance.contract import Contract
from conformance.spec import LEVELS

_DEFAULT_SCHEDULER = "conformance.engine.adapter:ADAPTER"
_DEFAULT_LIMITER = "conformance.contracts:GCRA"


@dataclass(frozen=True)
class Selection:
    """The levels to run, and on whom."""

    levels: frozenset[int]
    contracts: Sequence[Contract]
    schedulers: Sequence[Any]
    """SchedulerContracts; empty without level 2."""


def select(option: Any) -> Selection:
    """Read the options; raises pytest.UsageError, in one line."""
    if getattr(option, "dist", "no") != "no":
        raise _usage("the result is gathered in one process: run it without xdist (-n 0)")
    levels = _levels(option.level or ["1"])
    limiters, schedulers = option.limiter or [], option.scheduler or []
    if schedulers and 2 not in levels:
        raise _usage("--scheduler is for level 2: add --level 2")
    if not limiters and not schedulers:
        raise _usage("no backend to try: add --limiter module:CONTRACT")
    if not limiters and 1 in levels:
        raise _usage("level 1 tries limiters: add --limiter module:CONTRACT")
    if 2 in levels and find_spec("vllm") is None:
        raise _usage("level 2 needs vLLM, which is not installed here")
    if 3 in levels:
        raise _usage("level 3 needs a running endpoint: see conformance.endpoint")
    contracts = _load("--limiter", limiters or [_DEFAULT_LIMITER], _is_contract)
    made = []
    if 2 in levels:
        made = _load("--scheduler", schedulers or [_DEFAULT_SCHEDULER], _is_scheduler_contract)
        for contract in contracts:
            try:
                contract.backend  # noqa: B018  # level 2 finds limiters by name
            except ValueError as error:
                raise _usage(str(error)) from None
    return Selection(levels, contracts, made)


def _levels(texts: Iterable[str]) -> frozenset[int]:
    parts = [part.strip() for text in texts for part in text.split(",")]
    known = {str(level): level for level in LEVELS}
    for part in parts:
        if part not in known:
            raise _usage(f"--level must be among {', '.join(known)}, got {part!r}")
    return frozenset(known[part] for part in parts)


def _load(flag: str, texts: Iterable[str], belongs: Any) -> list[Any]:
    found: list[Any] = []
    for text in texts:
        value = _import(flag, text)
        several = value if isinstance(value, list | tuple) else [value]
        for each in several:
            if not belongs(each):
                raise _usage(f"{flag} {text}: expected a contract, got {type(each).__name__}")
        if not several:
            raise _usage(f"{flag} {text}: names no contract")
        found += several
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise _usage(f"{flag}: two contracts are named {name!r}")
    return found


def _import(flag: str, text: str) -> Any:
    module, colon, attribute = text.partition(":")
    if not (module and colon and attribute):
        raise _usage(f"{flag} must read module:CONTRACT, got {text!r}")
    try:
        value = importlib.import_module(module)
        for part in attribute.split("."):
            value = getattr(value, part)
    except Exception as error:  # whatever a foreign module raises while it is imported
        raise _usage(f"{flag} {text}: {type(error).__name__}: {error}") from error
    return value


def _is_contract(value: object) -> bool:
    return isinstance(value, Contract)


def _is_scheduler_contract(value: object) -> bool:
    from conformance.engine.contract import SchedulerContract

    return isinstance(value, SchedulerContract)


def _usage(message: str) -> pytest.UsageError:
    return pytest.UsageError(f"conformance: {message}")
