"""The suite tested: every planted fault is rejected, by each rule that must, and by its id.

One run of the plugin in a process of its own, over all faults at once. `planted_all` lists them.

To see which rules object to which fault, run it without the selection:

    PYTHONPATH=conformance/tests/level1 python -m pytest -p conformance.plugin \
        --pyargs conformance --limiter planted_all:ALL --conformance-profile quick
"""

from pathlib import Path

import planted_all
import planted_state
import pytest

from conformance.spec import rules
from conformance.tests import rejections

HERE = Path(__file__).parent
LEVEL_1 = {rule.id for rule in rules().values() if rule.level == 1}
CAUGHT = [(fault.name, rule) for fault in planted_all.FAULTS for rule in fault.caught_by]

ABOUT_NOBODY = {"L-INPUT-1"}
"""The call that it is about names the user, if there is one."""


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory):
    chosen = ("-p", "planted_selection", "--limiter", "planted_all:ALL")
    folder = tmp_path_factory.mktemp("planted")
    return rejections.outcomes(HERE, folder, *chosen, "--conformance-profile", "quick")


@pytest.mark.parametrize(("fault", "rule"), CAUGHT, ids=[f"{f}-{r}" for f, r in CAUGHT])
def test_the_fault_is_rejected_by_the_rule(outcomes, fault, rule):
    messages = [text for text in outcomes[fault][rule] if text is not None]
    assert messages, f"{rule} lets {fault!r} pass"
    for text in messages:
        if fault == planted_state.NEEDLESS.name:
            assert f"{rule} no longer fails for {fault}" in text
        else:
            rejections.said(text, rule, fault, about_nobody=ABOUT_NOBODY)


@pytest.mark.parametrize(
    ("backend", "rules_for_it"),
    [
        (planted_all.PLAIN, LEVEL_1 - {"L-STEP-1"}),
        (planted_all.PLAIN_WINDOW, planted_all.WINDOW_RULES),
    ],
    ids=["plain", "plain window"],
)
def test_what_the_faults_were_made_from_is_right(outcomes, backend, rules_for_it):
    found = outcomes[backend.name]
    assert [text for texts in found.values() for text in texts if text is not None] == []
    assert found.keys() == rules_for_it


def test_a_backend_that_names_no_definition_is_tried_too(outcomes):
    assert outcomes[planted_all.PLAIN_UNNAMED.name] == {"L-MODEL-1": [None]}


def test_every_rule_rejects_something():
    assert {rule for fault in planted_all.FAULTS for rule in fault.caught_by} >= LEVEL_1


def test_faults_have_names_of_their_own():
    names = [fault.name for fault in planted_all.FAULTS]
    assert len(set(names)) == len(names) >= 25
