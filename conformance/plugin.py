"""The pytest plugin: its options, and nothing else until one of them is used.

Loaded in every pytest run of an environment that has this package, so it imports no more than
pytest itself; what a conformance run needs is imported when one is asked for.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
_LEVELS = {1: HERE / "level1", 2: HERE / "level2", 3: HERE / "level3"}
_RUN = "conformance-run"
_WANTED = pytest.StashKey[bool]()

_NO_BACKEND = (
    "conformance: no backend to try: add --limiter module:CONTRACT for a limiter, or "
    "--level 2 --scheduler module:CONTRACT for a scheduler"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance", "conformance of output rate limiters and schedulers")
    group.addoption(
        "--limiter",
        action="append",
        metavar="MODULE:CONTRACT",
        help="a conformance.contract.Contract to try; may be given several times, and a name may "
        "stand for a sequence of contracts, as conformance.contracts:BUILT_IN does",
    )
    group.addoption(
        "--scheduler",
        action="append",
        metavar="MODULE:CONTRACT",
        help="a SchedulerContract to try at level 2 (default: the project's own scheduler)",
    )
    group.addoption(
        "--level",
        action="append",
        metavar="N[,N]",
        help="1: the limiter alone (default), 2: the real vLLM scheduler, 3: a running endpoint",
    )
    group.addoption(
        "--conformance-profile",
        choices=("quick", "ci", "deep"),
        default="ci",
        help="how long to search for counterexamples: ci is the same on every run, deep takes many "
        "times as long and differs, quick is ci that does not shorten what it finds",
    )
    group.addoption(
        "--conformance-html", metavar="PATH", help="write the result as one HTML page, with plots"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "rule(id): the test of a conformance rule")
    option = config.option
    if option.limiter or option.scheduler or option.level:
        _start(config)
    elif option.conformance_html:
        raise pytest.UsageError(_NO_BACKEND)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not collection_path.is_relative_to(HERE):
        return None
    run = config.pluginmanager.get_plugin(_RUN)
    level = next((n for n, at in _LEVELS.items() if collection_path.is_relative_to(at)), None)
    if level is not None:
        if run is None:
            if _reached(config, _LEVELS[level]):
                config.stash[_WANTED] = True  # raised here it would be but a collector's error
            return True
        return None if level in run.selection.levels else True
    # `--pyargs conformance` from a checkout: the suite's own tests are not part of a run.
    return True if run is not None and collection_path == HERE / "tests" else None


def pytest_collection_modifyitems(config: pytest.Config) -> None:
    if config.stash.get(_WANTED, False):
        raise pytest.UsageError(_NO_BACKEND)


def _reached(config: pytest.Config, folder: Path) -> bool:
    """Whether pytest was asked for the folder, for what holds it, or for something in it.

    It also looks at the neighbours of what it was asked for: `conformance/tests` alone is no run.
    """
    for argument in config.args:
        name = argument.partition("::")[0]
        path = config.invocation_params.dir / name
        if config.option.pyargs and name.partition(".")[0] == HERE.name:
            path = HERE.parent.joinpath(*name.split("."))
        path = path.resolve()
        if path.is_relative_to(folder) or folder.is_relative_to(path):
            return True
    return False


def _start(config: pytest.Config) -> None:
    from conformance import fixtures
    from conformance.run import Run
    from conformance.selection import select

    here = str(config.invocation_params.dir)
    if here not in sys.path:
        sys.path.insert(0, here)  # contracts of a project that is not installed, as with python -m
    config.pluginmanager.register(fixtures, "conformance-fixtures")
    config.pluginmanager.register(Run(config, select(config.option)), _RUN)
