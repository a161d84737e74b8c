"""The plugin in somebody else's repository: what it refuses, what it reports, when it is silent."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

# So that no run below imports them anew.
import conformance.level1.machine
import conformance.run
import conformance.selection  # noqa: F401

pytest_plugins = "pytester"

ROOT = Path(__file__).resolve().parents[3]
QUICK = ("-k", "L_CASES or S4_UNLIMITED")

CONTRACTS = """
    import pytest
    from dataclasses import replace
    from conformance.contracts import GCRA, ROLLING_WINDOW, ROLLING_WINDOW_1S
    from limiters import Gcra

    GOOD = replace(GCRA, name="good")
    ODD = replace(GCRA, name="<b>odd & ends</b>")
    UNDECLARED = replace(ROLLING_WINDOW_1S, name="undeclared", deviations={})
    NEEDLESS = replace(GCRA, name="needless", deviations={"S4-UNLIMITED-1": "it once did"})
    SEVERAL = (GOOD, ROLLING_WINDOW)
    NONE = ()
    TEXT = "gcra"

    def skips(**settings):
        pytest.skip("not today")

    def gives_up(**settings):
        pytest.xfail("known")

    def crashes(**settings):
        raise RuntimeError("no such thing")

    SKIPS = replace(GCRA, name="skips", make=skips)
    GIVES_UP = replace(GCRA, name="gives up", make=gives_up)
    CRASHES = replace(GCRA, name="crashes", make=crashes, deviations={"L-CASES-1": "it does"})
    EMPTY_REASON = lambda: replace(GCRA, deviations={"L-CASES-1": " "})
"""


@pytest.fixture
def repository(pytester, monkeypatch):
    """A foreign repository with contracts of its own, and strict settings."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.syspath_prepend(ROOT)
    pytester.makepyfile(mine=CONTRACTS, test_own="def test_own(): pass")
    pytester.makeini("[pytest]\naddopts = --strict-markers --strict-config\nxfail_strict = true\n")
    return pytester


@pytest.fixture
def run(repository):
    def run(*arguments, select=QUICK):
        return repository.runpytest_inprocess(
            "-p", "conformance.plugin", "--pyargs", "conformance", *select, *arguments
        )

    return run


# What it refuses.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no backend to try: add --limiter"),
        (["--level", "1"], "no backend to try"),
        (["--conformance-html", "x.html"], "no backend to try"),
        (["--limiter", "mine"], "--limiter must read module:CONTRACT, got 'mine'"),
        (["--limiter", "mine:MISSING"], "mine:MISSING: AttributeError"),
        (["--limiter", "nowhere:X"], "nowhere:X: ModuleNotFoundError"),
        (["--limiter", "mine:TEXT"], "mine:TEXT: expected a contract, got str"),
        (["--limiter", "mine:NONE"], "mine:NONE: names no contract"),
        (["--limiter", "mine:GOOD", "--limiter", "mine:GOOD"], "two contracts are named 'good'"),
        (["--limiter", "mine:GOOD", "--level", "4"], "--level must be among 1, 2, 3, got '4'"),
        (["--limiter", "mine:GOOD", "--level", "3"], "level 3 needs a running endpoint"),
        (["--scheduler", "mine:GOOD"], "--scheduler is for level 2: add --level 2"),
        (["--limiter", "mine:SKIPS", "--level", "1,2"], "`make` must be a name or a class"),
    ],
)
def test_a_usage_error(repository, monkeypatch, arguments, message):
    monkeypatch.setattr("conformance.selection.find_spec", lambda name: name)  # vLLM is there
    done = repository.runpytest_inprocess(
        "-p", "conformance.plugin", "--pyargs", "conformance.level1", *arguments
    )
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    text = done.stderr.str() + done.stdout.str()
    [line] = {line for line in text.splitlines() if line.startswith("ERROR:")}
    assert message in line


def test_level_2_without_vllm_is_a_usage_error(run, monkeypatch):
    monkeypatch.setattr("conformance.selection.find_spec", lambda name: None)
    done = run("--limiter", "mine:GOOD", "--level", "2")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert "level 2 needs vLLM, which is not installed here" in done.stderr.str()


def test_several_processes_are_a_usage_error(run, repository):
    repository.syspathinsert()
    repository.makepyfile(
        like_xdist="def pytest_addoption(parser): parser.addoption('--dist', default='no')"
    )
    done = run("--limiter", "mine:GOOD", "-p", "like_xdist", "--dist", "load")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert "run it without xdist" in done.stderr.str()


# What it reports.


def test_a_backend_that_keeps_its_promises(run):
    done = run("--limiter", "mine:SEVERAL")
    assert done.ret == 0
    done.stdout.fnmatch_lines(
        [
            "spec version 1; level 1 (the limiter alone): run, "
            "level 2 (the real scheduler): not run, level 3 (a running endpoint): not run",
            "*good *rolling_window*",
            "*alone *alone*",
            "L the limiter's own contract *partial *partial*",
            "S1 only output tokens are charged *- *-*",
            "S2 one shared quota, evenly *not run *not run*",
            "S4 others unaffected *partial *partial*",
        ]
    )
    assert "test_own" not in done.stdout.str()


def test_a_rule_that_is_broken(run):
    done = run("--limiter", "mine:UNDECLARED", select=("-k", "S2_EVEN"))
    assert done.ret == 1
    done.stdout.fnmatch_lines(
        [
            "S2 one shared quota, evenly *FAILED*",
            "failed",
            "  S2-EVEN-1 undeclared alone: S2-EVEN-1 broken by undeclared (alone): user a, from * "
            "seen 1000000000 ns, promised at most 100000000 ns. If this fails: look at *",
        ]
    )


def test_a_declared_deviation(run):
    done = run(
        "--limiter",
        "conformance.contracts:ROLLING_WINDOW_1S",
        select=("-k", "S2_EVEN or S2_WINDOW"),
    )
    assert done.ret == 0
    done.assert_outcomes(xfailed=2)
    done.stdout.fnmatch_lines(
        ["declared deviations", "  S2-WINDOW-1 rolling_window_1s alone: never more than N *"]
    )


def test_a_deviation_that_no_longer_fails(run):
    done = run("--limiter", "mine:NEEDLESS", select=("-k", "S4_UNLIMITED"))
    assert done.ret == 1
    text = "S4-UNLIMITED-1 no longer fails for needless: take the deviation out of its contract"
    assert text in done.stdout.str()


def test_a_deviation_excuses_no_crash(run):
    done = run("--limiter", "mine:CRASHES", select=("-k", "L_CASES"))
    assert done.ret == 1
    done.assert_outcomes(failed=1)
    text = "L-CASES-1 broken by crashes (alone): RuntimeError: no such thing"
    assert text in done.stdout.str()


@pytest.mark.parametrize("contract", ["SKIPS", "GIVES_UP"])
def test_a_skip_inside_a_rule_is_a_failure(run, contract):
    done = run("--limiter", f"mine:{contract}", select=("-k", "L_CASES"))
    done.assert_outcomes(failed=1)
    assert "L-CASES-1: a rule must not be skipped or xfailed inside" in done.stdout.str()


def test_junit_says_what_the_matrix_says(run, repository):
    run("--limiter", "mine:SEVERAL", "--junitxml=out.xml")
    told = [
        {each.get("name"): each.get("value") for each in case.iter("property")}
        for case in ElementTree.parse(repository.path / "out.xml").iter("testcase")
    ]
    assert len(told) == 4
    first = told[0]
    assert (first["rule"], first["semantic"], first["level"]) == ("L-CASES-1", "L", "1")
    assert (first["backend"], first["mode"], first["conformance"]) == ("good", "alone", "passed")
    assert first["figure"] == "11 examples"


def test_the_page_stands_alone(run, repository):
    run(
        "--limiter",
        "mine:ODD",
        "--conformance-html=out.html",
        select=("-k", "L_REACH or L_CASES"),
    )
    page = (repository.path / "out.html").read_text(encoding="utf-8")
    for outside in ("http://", "https://", "src=", "@import", "url(", "<script", "<link"):
        assert outside not in page
    assert "<b>odd" not in page
    assert "&lt;b&gt;odd &amp; ends&lt;/b&gt;" in page
    svg = page[page.index("<svg") : page.index("</svg>") + 6]
    lines = [each.get("class") for each in ElementTree.fromstring(svg).iter("polyline")]
    assert lines == ["rate", "bound", "grants"]
    assert "L-REACH-1" in page
    assert "not run" in page


# When it is silent.


def test_it_is_inert_without_its_options(repository):
    repository.makepyfile(
        test_own="""
        import sys

        def test_own():
            loaded = {"hypothesis", "vllm", "conformance.run", "conformance.spec", "limiters"}
            assert loaded & set(sys.modules) == set()
        """
    )
    plain = repository.runpytest_subprocess("-p", "conformance.plugin")
    assert plain.ret == 0
    assert "conformance" not in plain.stdout.str()


def test_one_line_makes_a_test_of_the_machine(repository):
    repository.makepyfile(
        test_machine="""
        from conformance.contracts import GCRA
        from conformance.level1.machine import limiter_machine

        TestMine = limiter_machine(GCRA).TestCase
        TestMine.settings = __import__("hypothesis").settings(max_examples=5, deadline=None)
        """
    )
    done = repository.runpytest_inprocess("test_machine.py")
    done.assert_outcomes(passed=1)
