"""The contracts of the project's own backends, each number as its proof gives it."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from conformance.contract import Contract

NS_PER_S = 1_000_000_000

__all__ = [
    "BUILT_IN",
    "GCRA",
    "GCRA_AUTO",
    "ROLLING_WINDOW",
    "ROLLING_WINDOW_1S",
    "TOKEN_BUCKET",
    "TOKEN_BUCKET_AUTO",
    "VARIANTS",
]


def even_bound(window_ns: int, rate: Fraction, burst_ns: int) -> int:
    """floor((W + B) * r) + 1."""
    return (window_ns + burst_ns) * rate.numerator // (NS_PER_S * rate.denominator) + 1


def even_wait_ns(rate: Fraction, burst_ns: int) -> int:
    """1/r, rounded up."""
    return -(-NS_PER_S * rate.denominator // rate.numerator)


def even_reach(rate: Fraction, burst_ns: int, step_ns: int, streams: int) -> Fraction | None:
    """All of the rate, if no step outlasts the burst or what the streams can use up at once."""
    return rate if step_ns <= min(Fraction(burst_ns), streams * NS_PER_S / rate) else None


def _takes(rate: Fraction, window_ns: int) -> int:
    """k, the takes that a log of this window holds."""
    return max(1, window_ns * rate.numerator // (NS_PER_S * rate.denominator))


def _log_numbers(fixed_ns: int | None) -> tuple[Callable, Callable, Callable]:
    """The numbers of a strict log of this window, or of the burst's length."""

    def bound(window_ns: int, rate: Fraction, burst_ns: int) -> int:
        """k * (floor(W * r / k) + 1)."""
        k = _takes(rate, burst_ns if fixed_ns is None else fixed_ns)
        spans = window_ns * rate.numerator // (NS_PER_S * rate.denominator * k)
        return k * (spans + 1)

    def wait_ns(rate: Fraction, burst_ns: int) -> int:
        """k/r, rounded up: all k may come at once."""
        k = _takes(rate, burst_ns if fixed_ns is None else fixed_ns)
        return -(-k * NS_PER_S * rate.denominator // rate.numerator)

    def reach(rate: Fraction, burst_ns: int, step_ns: int, streams: int) -> Fraction:
        """k tokens in as many whole steps as k/r takes, or what the streams can use of them."""
        k = _takes(rate, burst_ns if fixed_ns is None else fixed_ns)
        steps = -(-wait_ns(rate, burst_ns) // step_ns)
        return Fraction(min(k, streams * steps) * NS_PER_S, steps * step_ns)

    return bound, wait_ns, reach


def _even(name: str, backend: str, **more: object) -> Contract:
    return Contract(
        name=name,
        make=backend,
        bound=even_bound,
        evenness_ns=even_wait_ns,
        reach=even_reach,
        decides_like="gcra",
        **more,  # type: ignore[arg-type]
    )


def _log(name: str, window_ns: int | None, **more: object) -> Contract:
    bound, wait_ns, reach = _log_numbers(window_ns)
    return Contract(
        name=name,
        make="rolling_window",
        bound=bound,
        evenness_ns=wait_ns,
        reach=reach,
        decides_like="rolling_window",
        options={} if window_ns is None else {"window_ns": window_ns},
        **more,  # type: ignore[arg-type]
    )


GCRA = _even("gcra", "gcra")
TOKEN_BUCKET = _even("token_bucket", "token_bucket")
GCRA_AUTO = _even("gcra_auto", "gcra", options={"auto_burst": True}, follows_steps=True)
TOKEN_BUCKET_AUTO = _even(
    "token_bucket_auto", "token_bucket", options={"auto_burst": True}, follows_steps=True
)
ROLLING_WINDOW = _log("rolling_window", None)
ROLLING_WINDOW_1S = _log(
    "rolling_window_1s",
    NS_PER_S,
    deviations={
        "S2-WINDOW-1": "never more than N in any second: all N of them may come at once",
        "S2-EVEN-1": "after all N came at once there is nothing for the rest of the second",
    },
)

BUILT_IN = (GCRA, TOKEN_BUCKET, ROLLING_WINDOW)
"""The three backends with their default settings."""

VARIANTS = (GCRA_AUTO, TOKEN_BUCKET_AUTO, ROLLING_WINDOW_1S)
"""The three with their other options; the last one deviates, as declared."""
