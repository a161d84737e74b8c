"""How a fault is planted: a limiter with one thing wrong, or a declaration, and who must object."""

from dataclasses import dataclass
from typing import Any

from conformance.contract import Contract
from conformance.contracts import even_bound, even_reach, even_wait_ns


@dataclass(frozen=True)
class Fault:
    name: str
    caught_by: tuple[str, ...]
    """Every one of these rules must reject it."""
    contract: Contract


def fault(name: str, *caught_by: str, **declared: Any):
    """Plant a limiter class as a fault; it promises what GCRA does unless declared otherwise."""

    def plant(limiter: type) -> Fault:
        return Fault(name, caught_by, promise(name, limiter, **declared))

    return plant


def promise(name: str, make: Any, **declared: Any) -> Contract:
    numbers = {
        "bound": even_bound,
        "evenness_ns": even_wait_ns,
        "reach": even_reach,
        "decides_like": "gcra",
    }
    return Contract(name=name, make=make, **{**numbers, **declared})
