"""The suite tested: every planted fault is rejected, by each rule that must, and by its id.

One run of the plugin in a process of its own, over all faults at once; what came out is read from
its JUnit file, so that is tested as well. `planted_all` lists the faults.

To see which rules object to which fault, run it without the selection:

    PYTHONPATH=conformance/tests/level1 python -m pytest -p conformance.plugin \
        --pyargs conformance --limiter planted_all:ALL --conformance-profile quick
"""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

import planted_all
import pytest

from conformance.spec import rules

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
LEVEL_1 = {rule.id for rule in rules().values() if rule.level == 1}
CAUGHT = [(fault.name, rule) for fault in planted_all.FAULTS for rule in fault.caught_by]


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory):
    """{backend: {rule: [message of each test that failed, None of each that passed]}}."""
    folder = tmp_path_factory.mktemp("planted")
    report = folder / "junit.xml"
    command = [
        *(sys.executable, "-m", "pytest", "-p", "conformance.plugin", "-p", "planted_selection"),
        *("--pyargs", "conformance", "--limiter", "planted_all:ALL", f"--junitxml={report}"),
        *("--conformance-profile", "quick", "-q", "--tb=line", "-p", "no:cacheprovider"),
        *("-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder)),
    ]
    paths = [str(HERE), str(ROOT), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout[-3_000:] + done.stderr[-3_000:]
    found = defaultdict(lambda: defaultdict(list))
    for case in ElementTree.parse(report).iter("testcase"):
        told = {p.get("name"): p.get("value") for p in case.iter("property")}
        failure = case.find("failure")
        message = None if failure is None else f"{failure.get('message')}\n{failure.text}"
        assert (message is None) == (told["conformance"] == "passed")
        found[told["backend"]][told["rule"]].append(message)
    return found


@pytest.mark.parametrize(("fault", "rule"), CAUGHT, ids=[f"{f}-{r}" for f, r in CAUGHT])
def test_the_fault_is_rejected_by_the_rule(outcomes, fault, rule):
    messages = [text for text in outcomes[fault][rule] if text is not None]
    assert messages, f"{rule} lets {fault!r} pass"
    for text in messages:
        assert rule in text
        assert "If this fails" in text or "no longer fails" in text, text


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
