"""Every test that asks for it runs sync and async, and with each backend."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from conformance.contract import Contract
from conformance.contracts import BUILT_IN


@pytest.fixture(params=[1, 2], ids=["sync", "async"])
def depth(request: pytest.FixtureRequest) -> int:
    """Steps in flight: 2 is async scheduling."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=BUILT_IN, ids=lambda backend: backend.name)
def backend(request: pytest.FixtureRequest) -> Contract:
    return request.param  # type: ignore[no-any-return]


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def log_lines() -> Iterator[list[str]]:
    """What our logger says; vLLM's does not pass it on to the root, where caplog listens."""
    handler = _Lines()
    logger = logging.getLogger("vllm.output_rate")
    logger.addHandler(handler)
    yield handler.lines
    logger.removeHandler(handler)
