"""Decide: may this user have one more token now? No engine, no clock, no I/O, no dependency."""

from .gcra import Gcra
from .interface import Limiter
from .rate import parse_rate
from .registry import make_limiter

__all__ = ["Gcra", "Limiter", "make_limiter", "parse_rate"]
