"""What a backend hands in: its numbers, which the rules use and test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from conformance.spec import SPEC_VERSION, rules
from limiters import Limiter, make_limiter

DECISIONS = ("gcra", "rolling_window")
"""Definitions that a backend may claim to follow answer by answer, see `Contract.decides_like`."""


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What one backend promises. Every number is tested both ways: it holds, and it is reached.

    Rates are in tokens per second, everything else in ns. Raises ValueError, in one line, for a
    declaration that cannot be: an unknown rule id, an empty reason, an unknown spec version.
    """

    name: str
    """Short and printable: it names the backend in the results."""
    make: str | Callable[..., Limiter]
    """A name for `limiters.make_limiter`, or a class or function that takes the same keywords:
    `default_rate`, `rates`, `burst_ns`, and `options`. Level 2 needs a name or a class."""
    bound: Callable[[int, Fraction, int], int]
    """(window_ns, rate, burst_ns): the most grants in a closed window [a, a + window_ns]."""
    evenness_ns: Callable[[Fraction, int], int]
    """(rate, burst_ns): the longest wait between two grants of a user who always wants more."""
    reach: Callable[[Fraction, int, int, int], Fraction | None]
    """(rate, burst_ns, step_ns, streams): tokens per second that such a user gets at least if it
    may take up to `streams` tokens once a step, from a full quota on. None: nothing promised."""
    spec_version: int = SPEC_VERSION
    options: Mapping[str, Any] = field(default_factory=dict)
    """The backend's own keywords."""
    decides_like: str | None = None
    """`"gcra"` or `"rolling_window"`, if every answer is that of this definition. Then answers
    are compared with it; the rules about that are else not claimed."""
    follows_steps: bool = False
    """Whether a full quota follows the step told by `end_step`, as with `auto_burst`."""
    deviations: Mapping[str, str] = field(default_factory=dict)
    """Rules that it is known to break, each with the reason. One that it does not break fails."""

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name and self.name.isprintable()):
            raise ValueError(f"contract: name must be printable text, got {self.name!r}")
        if self.decides_like not in (None, *DECISIONS):
            raise ValueError(
                f"contract {self.name}: decides_like must be one of {', '.join(DECISIONS)} or "
                f"None, got {self.decides_like!r}"
            )
        check_declaration(self.name, self.spec_version, self.deviations)
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))
        object.__setattr__(self, "deviations", MappingProxyType(dict(self.deviations)))

    def limiter(
        self,
        default_rate: Any,
        *,
        rates: Mapping[str, Any] | None = None,
        burst_ns: int = 100_000_000,
    ) -> Limiter:
        """A new limiter of this backend, with its options."""
        settings = {"default_rate": default_rate, "rates": rates, "burst_ns": burst_ns}
        if isinstance(self.make, str):
            return make_limiter(self.make, **settings, **self.options)
        return self.make(**settings, **self.options)

    @property
    def backend(self) -> str:
        """The name under which `make_limiter` finds it; ValueError if `make` is a function."""
        if isinstance(self.make, str):
            return self.make
        if isinstance(self.make, type):
            return f"{self.make.__module__}:{self.make.__qualname__}"
        raise ValueError(
            f"contract {self.name}: a scheduler finds a limiter by name, so `make` must be a name "
            f"or a class, got {self.make!r}"
        )


def check_declaration(name: str, spec_version: int, deviations: Mapping[str, str]) -> None:
    """Refuse a spec version that is not there, an unknown rule id, and a reason left out."""
    if not (isinstance(spec_version, int) and 1 <= spec_version <= SPEC_VERSION):
        raise ValueError(
            f"contract {name}: spec_version must be 1 to {SPEC_VERSION}, got {spec_version!r}"
        )
    for rule, reason in deviations.items():
        if rule not in rules():
            raise ValueError(f"contract {name}: deviates from unknown rule {rule!r}, see SPEC.md")
        if not (isinstance(reason, str) and reason.strip()):
            raise ValueError(f"contract {name}: the deviation from {rule} must have a reason")
