"""Fixtures of rules. `contract`, `scheduler` and `depth` are filled in by the run, see `run`."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.rules import Trial


@pytest.fixture
def trial(request: pytest.FixtureRequest) -> Trial:
    """The rule that the test tries, on whom, and how to say what broke."""
    run = request.config.pluginmanager.get_plugin("conformance-run")
    return run.trial_of(request.node)


@pytest.fixture
def hypothesis_settings(request: pytest.FixtureRequest) -> Any:
    """The `hypothesis.settings` of the run's profile; `settings(parent=…)` to change its size."""
    from conformance.profiles import profile

    return profile(request.config.option.conformance_profile)
