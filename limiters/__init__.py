"""Decide: may this user have one more token now? No engine, no clock, no I/O, no dependency."""

from .gcra import Gcra
from .interface import Limiter
from .rate import parse_rate
from .registry import make_limiter
from .rolling_window import RollingWindow
from .token_bucket import TokenBucket

__all__ = ["Gcra", "Limiter", "RollingWindow", "TokenBucket", "make_limiter", "parse_rate"]
