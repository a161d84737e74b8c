"""Profiles for hypothesis: `ci`, the same on every run; `deep`; `quick`, which does not shrink."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings

_COMMON = {
    "deadline": None,  # a loaded machine is no counterexample
    "print_blob": False,
    "report_multiple_bugs": False,  # one broken rule, one message
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}

PROFILES = {
    "ci": settings(max_examples=100, derandomize=True, database=None, **_COMMON),
    "quick": settings(
        max_examples=100,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        **_COMMON,
    ),
    "deep": settings(max_examples=5_000, derandomize=False, **_COMMON),
}


def profile(name: str) -> settings:
    """The profile of this name."""
    return PROFILES[name]


def scaled(base: settings, share: float) -> settings:
    """The profile with a share of its examples, for tests whose examples are dear or cheap."""
    return settings(parent=base, max_examples=max(1, round(base.max_examples * share)))
