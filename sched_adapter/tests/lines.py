"""What a refusal said, for tests to compare."""

from collections.abc import Callable
from typing import Any

import pytest


def one_line(error: BaseException) -> str:
    text = str(error)
    assert text.isprintable()
    assert len(text) < 400
    return text


def line(read: Callable[..., object], *args: Any, **kwargs: Any) -> str:
    """The whole text of a refusal, for the caller to compare."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        read(*args, **kwargs)
    return str(caught.value)
