"""The options of `pytest gpu_e2e`, and a run that could do nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpu_e2e import conftest
from gpu_e2e.suite import options, users
from gpu_e2e.suite.run import in_order, keys_for
from gpu_e2e.suite.servers import Key

ROOT = Path(__file__).resolve().parents[2]


def config(**given):
    return SimpleNamespace(getoption=lambda name, default=None: given.get(name, default))


def test_the_default_is_every_backend_in_both_modes_on_cuda():
    read = options.read(config())
    assert read.device == "cuda"
    assert read.engines == tuple((b, m) for b in options.BACKENDS for m in ("sync", "async"))
    assert not read.same_tokens


def test_a_backend_in_one_mode_only():
    read = options.read(config(backend=["gcra", "token_bucket/async", "m:C/sync", "gcra/sync"]))
    assert [f"{b} {m}" for b, m in read.engines] == [
        "gcra sync",
        "gcra async",
        "token_bucket async",
        "m:C sync",
    ]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"backend": ["gcra/both"]}, "gcra/both"),
        ({"base_url": "http://127.0.0.1:8000", "served_as": "m"}, "http://HOST:PORT/v1"),
        ({"base_url": "http://127.0.0.1:8000/v1"}, "--served-as"),
        ({"base_url": "http://h/v1", "served_as": "m", "mode": ["sync"]}, "--mode"),
        ({"record": Path("r")}, "--base-url"),
    ],
)
def test_options_that_do_not_go_together(given, says):
    with pytest.raises(pytest.UsageError, match=says):
        options.read(config(**given))


def test_without_cuda_it_says_what_to_do(monkeypatch):
    torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(pytest.UsageError, match="--device cpu"):
        options.need_device(options.read(config()))
    options.need_device(options.read(config(device="cpu")))
    options.need_device(options.read(config(base_url="http://h/v1", served_as="m")))


def test_a_run_without_cuda_is_a_usage_error():
    """Not a run in which everything is skipped, which would be green."""
    hidden = "import sys; sys.modules['torch'] = None; import pytest; sys.exit(pytest.main())"
    command = [sys.executable, "-c", hidden, "gpu_e2e/scenarios", "-q", "-p", "no:cacheprovider"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    assert "no CUDA device" in ended.stderr + ended.stdout
    assert "--device cpu" in ended.stderr + ended.stdout


class Item:
    def __init__(self, name, key=None, **markers):
        self.name, self.markers = name, markers
        self.callspec = SimpleNamespace(params={"live": key}) if key else None

    def get_closest_marker(self, name):
        args = self.markers.get(name)
        if not args:
            return None
        return SimpleNamespace(args=() if args is True else args)


def test_each_server_is_started_once_and_ended_last():
    key = {f: Key("gcra", "sync", f) for f in ("roomy", "tight")}
    other = Key("gcra", "async", "roomy")
    items = [
        Item("end", key["roomy"], last=True),
        Item("a", key["roomy"]),
        Item("b", other),
        Item("c", key["tight"]),
        Item("d", key["roomy"]),
        Item("e", other),
        Item("alone"),
    ]
    assert [i.name for i in in_order(items)] == ["alone", "a", "d", "end", "c", "b", "e"]


def test_which_servers_a_scenario_runs_on():
    read = options.read(config(device="cpu", backend=["gcra", "token_bucket"]))
    assert len(keys_for(Item("a"), read)) == 4
    assert keys_for(Item("a", once=True), read) == [Key("gcra", "sync", "roomy")]
    one = Item("a", once=("token_bucket", "async"))
    assert keys_for(one, read) == [Key("token_bucket", "async", "roomy")]
    both = Item("a", once=("token_bucket",))
    assert [key.mode for key in keys_for(both, read)] == ["sync", "async"]
    assert {key.backend for key in keys_for(both, read)} == {"token_bucket"}
    one = Item("a", once=("rolling_window", "async"))
    assert keys_for(one, read) == [Key("gcra", "sync", "roomy")]
    assert {key.flags for key in keys_for(Item("a", flags=("tight",)), read)} == {"tight"}


def test_two_scenarios_never_share_a_user():
    users.limited("of the test of users", "0.5")
    with pytest.raises(ValueError, match="taken"):
        users.limited("of the test of users", 1)
    assert '"of the test of users":0.5' in users.flag()[1]


@pytest.mark.parametrize(
    ("arguments", "left_out"),
    [
        (["gpu_e2e"], True),
        (["gpu_e2e/scenarios", "gpu_e2e/tests"], True),
        (["gpu_e2e/soak"], None),
        (["gpu_e2e/soak/test_soak.py::test_soak"], None),
        (["gpu_e2e/tests", "gpu_e2e/soak/"], None),
    ],
)
def test_the_soak_is_for_those_who_name_it(arguments, left_out):
    given = SimpleNamespace(args=arguments, invocation_params=SimpleNamespace(dir=ROOT))
    assert conftest.pytest_ignore_collect(conftest.SOAK, given) is left_out
    assert conftest.pytest_ignore_collect(conftest.SCENARIOS, given) is None


@pytest.mark.parametrize("time", [0.0, -1.0, float("inf"), float("nan")])
def test_minutes_that_are_none(time):
    with pytest.raises(pytest.UsageError, match="--minutes"):
        options.minutes(config(minutes=time))
    assert options.minutes(config(minutes=5.0)) == 5.0
