"""The suite tested: every wrong scheduler is rejected, by each rule that must, and by its id.

One run of the plugin in a process of its own, over all of them at once; what came out is read from
its JUnit file. `wrong_all` lists them.
"""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

import pytest
import wrong_all

from conformance.spec import rules

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
CAUGHT = [(fault.name, rule) for fault in wrong_all.FAULTS for rule in fault.caught_by]


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory):
    """{scheduler: {rule: [message of each test that failed, None of each that passed]}}."""
    folder = tmp_path_factory.mktemp("wrong")
    report = folder / "junit.xml"
    command = [
        *(sys.executable, "-m", "pytest", "-p", "conformance.plugin", "-p", "wrong_selection"),
        *("--pyargs", "conformance", "--level", "2", "--scheduler", "wrong_all:ALL"),
        *(f"--junitxml={report}", "-q", "--tb=line", "-p", "no:cacheprovider"),
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
        name = told["backend"].rpartition(" in ")[2]
        found[name][told["rule"]].append(message)
    return found


@pytest.mark.parametrize(("fault", "rule"), CAUGHT, ids=[f"{f}-{r}" for f, r in CAUGHT])
def test_the_fault_is_rejected_by_the_rule(outcomes, fault, rule):
    messages = [text for text in outcomes[fault][rule] if text is not None]
    assert messages, f"{rule} lets {fault!r} pass"
    assert any(f"{rule} broken by" in text for text in messages), messages[0]


def test_every_rule_rejects_something():
    level2 = {rule.id for rule in rules().values() if rule.level == 2}
    assert level2 <= {rule for fault in wrong_all.FAULTS for rule in fault.caught_by}


def test_faults_have_names_of_their_own():
    names = [fault.name for fault in wrong_all.FAULTS]
    assert len(set(names)) == len(names) >= 20
