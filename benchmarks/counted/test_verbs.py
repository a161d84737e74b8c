"""Each verb of each backend, in instructions, against the committed counts of this Python."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.counted import verbs
from benchmarks.counted.__main__ import measured
from benchmarks.counted.kept import Kept, python
from benchmarks.counted.verbs import BACKENDS, CROWD, VERBS


@pytest.fixture(scope="module")
def counts() -> dict[str, int]:
    return measured("verbs")


@pytest.fixture(scope="module")
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    # Nothing but our own code runs in a verb, so the counts are exact. A Python without a file has
    # no counts, which fails: the limiters are promised for each Python that tox runs them on.
    kept = Kept(python(), update=request.config.getoption("--update"))
    yield kept
    kept.save()


@pytest.mark.parametrize("name", BACKENDS)
def test_a_backend_costs_what_is_kept(kept: Kept, counts: dict[str, int], name: str) -> None:
    kept.check_all({key: new for key, new in counts.items() if key.startswith(f"{name}: ")})


def test_nothing_kept_is_left_unmeasured(kept: Kept, counts: dict[str, int]) -> None:
    kept.check_keys(counts)


@pytest.mark.parametrize("name", BACKENDS)
def test_a_crowd_of_other_users_costs_a_verb_nothing(name: str) -> None:
    alone, crowd = BACKENDS[name].make(), BACKENDS[name].make(CROWD)
    for verb in VERBS:
        assert verbs.opcodes(crowd, verb) == verbs.opcodes(alone, verb), verb
