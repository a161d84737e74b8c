"""Depth-2 asynchronous scheduling on the CPU platform, for tests.

vLLM's CPU platform turns `async_scheduling` off without a word (vllm/platforms/cpu.py, in
`check_and_update_config`, 0.32.0). Restoring what was asked for gives a working engine that
dispatches a step before the last one's result is in, with the same tokens.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any

SWITCH = "OUTPUT_RATE_E2E_DEPTH2"


def wanted(env: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment asks for the switch. Spawned children inherit it."""
    return env.get(SWITCH) == "1"


def enable() -> None:
    """Make vLLM's CPU platform keep the `async_scheduling` that it is given. Twice is once."""
    from vllm.platforms.cpu import CpuPlatform

    original = CpuPlatform.check_and_update_config
    if getattr(original, "_keeps_async", False):
        return

    @functools.wraps(original)
    def keep_async(vllm_config: Any) -> None:
        asked = vllm_config.scheduler_config.async_scheduling
        original(vllm_config)
        vllm_config.scheduler_config.async_scheduling = asked

    keep_async._keeps_async = True  # type: ignore[attr-defined]
    CpuPlatform.check_and_update_config = staticmethod(keep_async)
