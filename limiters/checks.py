"""Refusals of bad arguments: one line that says what was wrong and which value it was."""

from __future__ import annotations

_LONGEST_SHOWN = 60


def shown(value: object) -> str:
    """The value as an error message may carry it: one line, at most 60 characters of it."""
    try:
        text = ascii(value)
    except Exception:  # a foreign __repr__, or an int beyond Python's limit of digits
        text = f"<{type(value).__name__}>"
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."


def check_user(user: object) -> None:
    """Refuse whatever is not a non-empty str."""
    if not isinstance(user, str):
        raise TypeError(f"user must be a non-empty str, got {shown(user)}") from None
    if not user:
        raise ValueError("user must be a non-empty str, got ''") from None


def check_int(name: str, value: object, *, least: int | None = None) -> None:
    """Refuse whatever is not an int of at least `least`; bool is no int here."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {shown(value)}") from None
    if least is not None and value < least:
        raise ValueError(f"{name} must be at least {least}, got {shown(value)}") from None
