"""SPEC.md and the tests say the same; contracts that cannot be are refused."""

import importlib
import pkgutil
from dataclasses import replace

import pytest

import conformance.level1
from conformance import contracts, spec
from conformance.contract import Contract
from conformance.rules import rule

GOOD = """
### S1-FIRST-2
MUST, since version 1.
- Intent: why.
- Rule: what.
- If this fails: where.
"""


def test_every_rule_of_level_1_has_a_test_and_every_test_a_rule():
    tested = set()
    for module in pkgutil.iter_modules(conformance.level1.__path__, "conformance.level1."):
        if not module.name.rpartition(".")[2].startswith("test_"):
            continue
        for name, test in vars(importlib.import_module(module.name)).items():
            if name.startswith("test_"):
                [mark] = test.pytestmark
                tested |= set(mark.args)
                assert mark.args[0].replace("-", "_") in name
    assert tested == {each.id for each in spec.rules().values() if each.level == 1}


def test_spec_reads():
    found = spec.read(GOOD)["S1-FIRST-2"]
    assert (found.semantic, found.level, found.must, found.since) == ("S1", 2, True, 1)
    assert (found.intent, found.statement, found.look_at) == ("why.", "what.", "where.")
    assert len(spec.rules()) > 90


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("### S1-FIRST-2", "### S6-FIRST-2", "no rule id"),
        ("### S1-FIRST-2", "### S1-FIRST", "no rule id"),
        ("MUST, since version 1.", "SHALL, since version 1.", "MUST or SHOULD"),
        ("version 1", "version 99", "no spec version 99"),
        ("- Rule: what.\n", "", "expected a sentence|must follow"),
        ("- Intent: why.", "- Intent: why", "expected a sentence"),
        ("- If this fails: where.\n", "- If this fails: where.\n" + GOOD, "there twice"),
    ],
)
def test_a_spec_that_is_wrong(before, after, message):
    with pytest.raises(ValueError, match=message):
        spec.read(GOOD.replace(before, after))


def test_a_rule_names_its_test():
    with pytest.raises(ValueError, match="must hold S1_FIRST_2"):

        @rule("S1-FIRST-2")
        def test_something():
            pass

    with pytest.raises(ValueError, match="unknown rule"):
        rule("S1-NOWHERE-2")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "name must be printable"),
        ({"name": "a\nb"}, "name must be printable"),
        ({"decides_like": "leaky"}, "decides_like must be one of gcra, rolling_window or None"),
        ({"spec_version": 0}, "spec_version must be 1 to 1"),
        ({"spec_version": "1"}, "spec_version must be 1 to 1"),
        ({"deviations": {"S9-NOWHERE-1": "why"}}, "unknown rule 'S9-NOWHERE-1'"),
        ({"deviations": {"L-CASES-1": " "}}, "L-CASES-1 must have a reason"),
    ],
)
def test_a_contract_that_cannot_be(change, message):
    with pytest.raises(ValueError, match=message) as caught:
        replace(contracts.GCRA, **change)
    assert "\n" not in str(caught.value)


def test_a_contract_is_frozen_through_and_through():
    with pytest.raises(AttributeError):
        contracts.GCRA.name = "other"
    with pytest.raises(TypeError):
        contracts.ROLLING_WINDOW_1S.deviations["L-CASES-1"] = "why"
    with pytest.raises(TypeError):
        contracts.ROLLING_WINDOW_1S.options["window_ns"] = 1


def test_how_a_scheduler_finds_the_limiter():
    assert contracts.GCRA.backend == "gcra"
    assert replace(contracts.GCRA, make=Contract).backend == "conformance.contract:Contract"
    with pytest.raises(ValueError, match="must be a name or a class"):
        _ = replace(contracts.GCRA, make=lambda **settings: None).backend
