"""The suite tested: every wrong scheduler is rejected, by each rule that must, and by its id.

One run of the plugin in a process of its own, over all of them at once. `wrong_all` lists them.
"""

from pathlib import Path

import pytest
import wrong_all

from conformance.spec import rules
from conformance.tests import rejections

HERE = Path(__file__).parent
CAUGHT = [(fault.name, rule) for fault in wrong_all.FAULTS for rule in fault.caught_by]
ABOUT_NOBODY = {
    "S3-LEAK-2",
    "S3-WAIT-2",
    "S4-CAP-2",
    "S4-STOCK-2",
    "S5-CLASS-2",
    "S5-DISPATCH-2",
}
"""These look at the scheduler as a whole."""


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory):
    chosen = ("-p", "wrong_selection", "--level", "2", "--scheduler", "wrong_all:ALL")
    return rejections.outcomes(HERE, tmp_path_factory.mktemp("wrong"), *chosen)


@pytest.mark.parametrize(("fault", "rule"), CAUGHT, ids=[f"{f}-{r}" for f, r in CAUGHT])
def test_the_fault_is_rejected_by_the_rule(outcomes, fault, rule):
    messages = [text for text in outcomes[fault][rule] if text is not None]
    assert messages, f"{rule} lets {fault!r} pass"
    for text in messages:
        rejections.said(text, rule, fault, about_nobody=ABOUT_NOBODY)


def test_every_rule_rejects_something():
    level2 = {rule.id for rule in rules().values() if rule.level == 2}
    assert level2 <= {rule for fault in wrong_all.FAULTS for rule in fault.caught_by}


def test_faults_have_names_of_their_own():
    names = [fault.name for fault in wrong_all.FAULTS]
    assert len(set(names)) == len(names) >= 20
