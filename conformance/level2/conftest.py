"""The fixture `bench`: what a rule of level 2 holds in its hands."""

import pytest

from conformance.level2.bench import Bench


@pytest.fixture
def bench(scheduler, contract, depth, trial):
    return Bench(scheduler, contract, depth, trial)
