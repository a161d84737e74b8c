"""`pytest gpu_e2e`: options, servers and the report. What they do is in `suite`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpu_e2e.suite import options

if TYPE_CHECKING:
    from gpu_e2e.suite.live import Live
    from gpu_e2e.suite.results import Scenario

SCENARIOS = Path(__file__).parent / "scenarios"
SOAK = Path(__file__).parent / "soak"
PLUGIN = "gpu-e2e-run"


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "flags(name): the server's flags, roomy by default")
    config.addinivalue_line("markers", "last: the scenario ends its server, so it comes last")
    config.addinivalue_line(
        "markers", "once(backend, mode): on the first server only, or on those with what is named"
    )
    config.addinivalue_line("markers", "server: it starts real servers; only by -m server")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The soak takes minutes: only for those who name it."""
    if collection_path != SOAK:
        return None
    asked = (config.invocation_params.dir / arg.partition("::")[0] for arg in config.args)
    return None if any(path.resolve().is_relative_to(SOAK) for path in asked) else True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "live" not in metafunc.fixturenames:
        return
    from gpu_e2e.suite.run import keys_for

    keys = keys_for(metafunc.definition, options.read(metafunc.config))
    metafunc.parametrize("live", keys, ids=str, indirect=True, scope="function")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "server" not in config.option.markexpr:
        costly = [item for item in items if item.get_closest_marker("server")]
        if costly:
            config.hook.pytest_deselected(items=costly)
            items[:] = [item for item in items if item not in costly]
    mine = [
        item
        for item in items
        if item.path.is_relative_to(SCENARIOS)
        or (item.path.is_relative_to(SOAK) and "live" in getattr(item, "fixturenames", ()))
    ]
    if not mine:
        return
    given = options.read(config)
    options.need_device(given)
    from gpu_e2e.suite.run import Run, in_order

    items[:] = [item for item in items if item not in mine] + in_order(mine)
    config.pluginmanager.register(Run(given, config), PLUGIN)


@pytest.fixture
def live(request: pytest.FixtureRequest) -> Iterator[Live]:
    """A running server with the scenarios' limits."""
    yield from request.config.pluginmanager.get_plugin(PLUGIN).lend(request)


@pytest.fixture
def alone(request: pytest.FixtureRequest) -> Scenario:
    """For a scenario that starts an engine of its own: no server lives meanwhile."""
    return request.config.pluginmanager.get_plugin(PLUGIN).alone(request)
