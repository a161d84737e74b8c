"""A run of the suite over planted faults, in a process of its own, and what came out of it.

It is read from the run's JUnit file, so that is tested as well.
"""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

_MESSAGE = re.compile(
    r"^(?P<rule>\S+) broken by (?P<backend>.+?) \((?P<mode>\w+)\): user (?P<user>.+?), "
    r"(?P<at>.+?): seen (?P<seen>.+?), promised (?P<promised>.+?)\. If this fails: \w",
    re.MULTILINE | re.DOTALL,
)

_CALLS = (", step", ", abort", ", reset_prefix_cache")
"""How a place ends that is an error inside one of these."""

_SLIPS = ("TypeError", "AttributeError", "NameError", "UnboundLocalError", "ImportError")
"""An error of these says that the planted code does not run, and not that it is wrong."""


def outcomes(faults, folder, *arguments):
    """{backend: {rule: [message of each test that failed, None of each that passed]}}.

    `faults` is the folder of the modules that hold them; `folder` is for what the run writes.
    """
    report = folder / "junit.xml"
    command = [
        *(sys.executable, "-m", "pytest", "-p", "conformance.plugin", "-p", "first_rejection"),
        *("--pyargs", "conformance", *arguments, f"--junitxml={report}"),
        *("-q", "--tb=line", "-p", "no:cacheprovider"),
        *("-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder)),
    ]
    paths = [str(faults), str(HERE), str(ROOT), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout[-3_000:] + done.stderr[-3_000:]
    found = defaultdict(lambda: defaultdict(list))
    for case in ElementTree.parse(report).iter("testcase"):
        told = {p.get("name"): p.get("value") for p in case.iter("property")}
        failure = case.find("failure")
        message = None if failure is None else f"{failure.get('message')}\n{failure.text}"
        assert (message is None) == (told["conformance"] == "passed"), told
        found[told["backend"].removeprefix("gcra in ")][told["rule"]].append(message)
    return found


def said(message, rule, backend, *, about_nobody=()):
    """Fail unless a failure tells rule, backend, user, where, what was seen and promised.

    `about_nobody` are rules of which a failure may be about the engine as a whole, as an error in
    a step always is.
    """
    told = _MESSAGE.search(message.replace("conformance.rules.RuleBroken: ", ""))
    assert told, message
    assert told["rule"] == rule, message
    assert told["backend"].removeprefix("gcra in ") == backend, message
    assert told["at"] != "-", message
    assert not told["seen"].startswith(_SLIPS), message
    whole_engine = rule in about_nobody or told["at"].endswith(_CALLS)
    assert told["user"] != "-" or whole_engine, message
