"""Documents against the code, as far as no engine is needed; `test_docs_served` has the rest."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
import venv
from pathlib import Path

import documents
import pytest
from documents import ROOT, Block

#: check -> where it is run or looked at
CHECKS = {
    "ci": "here: .ci/run has it, word for word",
    "tox": "here: an environment of tox has it",
    "menu": "here: names environments and tests that there are; CI runs those",
    "install": "here: run in an environment of its own",
    "python": "here: run",
    "config": "here: read by vLLM's parser",
    "flags": "here: read by vLLM's parser; the host that it is for is not at hand",
    "server": "test_docs_served: run",
    "client": "test_docs_served: run against that server",
    "offline": "test_docs_served: run",
}
DOCUMENTS = documents.names()
ALL = [block for name in DOCUMENTS for block in documents.blocks(name)]


def param(kind):
    return pytest.mark.parametrize("block", documents.checked(kind), ids=str)


@pytest.fixture(scope="module")
def tox_ini():
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string((ROOT / "tox.ini").read_text().replace("{/}", "/"))
    return parser


def expanded(names):
    """Names of environments, factors written out."""
    found = []
    for name in names:
        head, brace, factors = name.partition("{")
        inside = factors.rstrip("}").split(",") if brace else [""]
        found += [head + factor.strip() for factor in inside if name]
    return found


def environments(tox_ini):
    """Those of env_list."""
    return expanded(tox_ini["tox"]["env_list"].split("\n"))


# Every block has its check


@pytest.mark.parametrize("block", [b for b in ALL if b.language in documents.RUNNABLE], ids=str)
def test_every_block_is_checked(block: Block):
    by, _, path = block.check.partition(":")
    if by == "by":  # a test elsewhere runs it
        assert Path(block.document).name in (ROOT / path).read_text()
    else:
        assert block.check in CHECKS, f"give it one of check={', check='.join(CHECKS)}"


def test_every_check_has_a_block():
    assert CHECKS.keys() - {block.check for block in ALL} == set()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_inside_the_project_lead_somewhere(document):
    text = documents.text_of(document)
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    anchors = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        elif "://" not in target:
            path = (ROOT / document).parent / target.partition("#")[0]
            assert path.exists(), target


# Commands


@param("ci")
def test_ci_runs_it_word_for_word(block):
    [command] = block.commands()
    assert command in [line.strip() for line in (ROOT / ".ci/run").read_text().splitlines()]


@param("tox")
def test_an_environment_of_tox_runs_it(block, tox_ini):
    runs = [tox_ini[f"testenv:{name}"]["commands"] for name in ("demo",)]
    for command in block.commands():
        words = command.replace("python3 ", "python ", 1)
        assert any(line.startswith(words) for run in runs for line in run.splitlines()), command


@param("menu")
def test_named_environments_and_tests_exist(block, tox_ini):
    for command in block.commands():
        arguments, _, words = command.partition(" -- ")
        for names in re.findall(r"-e (\S+)", arguments):
            assert set(names.split(",")) <= set(environments(tox_ini)), command
        if words:
            run = subprocess.run(
                [sys.executable, "-m", "pytest", "--collect-only", "-q", *words.split()],
                cwd=ROOT,
                capture_output=True,
                text=True,
            )
            assert run.returncode == 0, run.stdout


def test_the_menu_is_toxs_own(tox_ini):
    rows = documents.table_after("CONTRIBUTING.md", "The environments are the menu:")
    listed = [name for row in rows for name in re.findall(r"`([^`]+)`", row[0])]
    default = environments(tox_ini)
    assert listed[: len(default)] == default
    sections = [name.partition(":")[2] for name in tox_ini if name.startswith("testenv:")]
    on_demand = [name for name in expanded(sections) if name not in default]
    assert sorted(listed[len(default) :]) == sorted(on_demand)


@param("install")
def test_it_installs_and_vllm_would_find_the_plugin(block, tmp_path):
    venv.create(tmp_path / "env", with_pip=True)
    [command] = block.commands()
    assert command.startswith("pip ")
    python = tmp_path / "env/bin/python"
    pip = [python, "-m", *command.split()]
    assert subprocess.run(pip, cwd=ROOT).returncode == 0
    code = (
        "from importlib.metadata import entry_points\n"
        "[point] = entry_points(group='vllm.general_plugins')\n"
        "point.load()()\n"  # without vLLM it warns and does nothing more
    )
    run = subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@param("python")
def test_it_runs_and_prints_what_its_comments_say(block, tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", block.text], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    said = re.findall(r"^print\(.*\)  # (.*)$", block.text, re.M)
    assert said
    assert run.stdout.splitlines() == said


# Flags, by vLLM's own parser


def parsed(*arguments):
    """What vLLM makes of `vllm serve MODEL ...`: the limits, and the rest."""
    from sched_adapter import plugin

    plugin.register()
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    args = make_arg_parser(FlexibleArgumentParser()).parse_args(list(arguments))
    return args.additional_config["output_rate"], args


def served():
    """The documented server's arguments."""
    vllm, serve, _, *flags = documents.only("server").words()
    assert (vllm, serve) == ("vllm", "serve")
    return flags


@param("flags")
def test_vllm_takes_the_flags(block):
    vllm, serve, model, *flags = block.words()
    assert (vllm, serve) == ("vllm", "serve")
    limits, args = parsed("--model", model, *flags)
    assert limits.enabled
    assert args.max_num_active_seqs < args.max_num_seqs


@param("config")
def test_the_config_file_says_the_same_as_the_flags(block, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(block.text)
    from_file, in_file = parsed("--config", str(path))
    from_flags, in_flags = parsed(*served())
    assert from_file == from_flags
    for name in ("max_num_seqs", "max_num_active_seqs"):
        assert getattr(in_file, name) == getattr(in_flags, name)


def test_the_table_of_flags_is_complete():
    from sched_adapter import flags

    rows = documents.table_after("README.md", "print(answer.usage.completion_tokens)")
    assert [row[0].strip("`").split()[0] for row in rows] == list(flags.FLAGS.values())


def test_other_flags_that_the_readme_names_are_vllms():
    from sched_adapter.tests.vllm_flags import parser

    known = parser()._option_string_actions
    ours = {"--here", "--device", "--group", "--"}
    for flag in (
        set(re.findall(r"`[^`\n]*?(--[a-z][a-z-]+)", documents.text_of("README.md"))) - ours
    ):
        assert flag in known, flag


# Tables that repeat what the code knows


def test_refusals_and_their_reasons():
    from sched_adapter.refusals import RULES

    rows = documents.table_after("README.md", "Refused together with limits")
    expected = [
        [rule.what, f"{rule.why}: {rule.mend}" if rule.mend else rule.why] for rule in RULES
    ]
    assert rows == expected


def test_the_bound_of_the_example():
    from limiters import make_limiter

    limiter = make_limiter("gcra", default_rate=20)
    most = sum(limiter.try_take_many("a", 99, ms * 1_000_000) for ms in range(1_001))
    said = " ".join(documents.text_of("README.md").split())
    assert f"{most} in any second at 20 tok/s" in said
