"""Level 2: the real vLLM scheduler and KV cache manager, a scripted model, a manual clock.

Importing this package imports no vLLM; a name that needs it loads it on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from conformance.engine.adapter import ADAPTER
from conformance.engine.clock import ManualClock
from conformance.engine.contract import STOCK, UNLIMITED, Account, Ledger, Limits, SchedulerContract
from conformance.engine.model import EOS, STOP, ScriptedModel
from conformance.engine.observe import History, RequestLog, SampleJudge, StepLog, Tally, digest

if TYPE_CHECKING:
    from conformance.engine.config import build_scheduler, make_kv_cache_config, make_vllm_config
    from conformance.engine.engine import ScriptedEngine
    from conformance.engine.grammar import ScriptedGrammar, pending_grammar
    from conformance.engine.runner import EngineFault

_LAZY = {
    "EngineFault": "runner",
    "ScriptedEngine": "engine",
    "ScriptedGrammar": "grammar",
    "build_scheduler": "config",
    "make_kv_cache_config": "config",
    "make_vllm_config": "config",
    "pending_grammar": "grammar",
}

__all__ = [
    "ADAPTER",
    "EOS",
    "STOCK",
    "STOP",
    "UNLIMITED",
    "Account",
    "EngineFault",
    "History",
    "Ledger",
    "Limits",
    "ManualClock",
    "RequestLog",
    "SampleJudge",
    "SchedulerContract",
    "ScriptedEngine",
    "ScriptedGrammar",
    "ScriptedModel",
    "StepLog",
    "Tally",
    "build_scheduler",
    "digest",
    "make_kv_cache_config",
    "make_vllm_config",
    "pending_grammar",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
