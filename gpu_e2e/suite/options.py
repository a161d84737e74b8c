"""What a run is asked to do: device, model, backends, modes, or a server that runs already."""

from __future__ import annotations

import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpu_e2e.engine.launch import Device, Mode

BACKENDS = ("gcra", "token_bucket", "rolling_window")
MODES: tuple[Mode, ...] = ("sync", "async")
REPORTS = Path(__file__).resolve().parents[2] / "reports" / "gpu_e2e"

NO_CUDA = (
    "gpu_e2e: no CUDA device here, and without one nothing would run: add --device cpu, which runs "
    "every scenario on vLLM's CPU build with the project's own tiny model"
)


def add(parser: pytest.Parser) -> None:
    """The options of `pytest gpu_e2e`."""
    group = parser.getgroup("gpu_e2e", "output rates on a real engine, over HTTP")
    group.addoption("--device", choices=("cuda", "cpu"), default="cuda", help="default: cuda")
    group.addoption(
        "--model", metavar="NAME", help="a model to serve (default: the project's own tiny one)"
    )
    # Not --limiter: that is the conformance plugin's, and starts a conformance run.
    group.addoption(
        "--backend",
        action="append",
        metavar="NAME[/MODE]",
        help=f"a limiter to try, may be given several times (default: {', '.join(BACKENDS)}); "
        "with a mode in that one only, as in token_bucket/async",
    )
    group.addoption(
        "--mode",
        action="append",
        choices=MODES,
        help="scheduling to try, may be given several times (default: both)",
    )
    group.addoption(
        "--base-url",
        metavar="URL",
        help="judge a server that runs already, e.g. http://127.0.0.1:8000/v1; what cannot be done "
        "there is listed as not run. Needs --served-as and --device, and --record for most of it",
    )
    group.addoption("--served-as", metavar="NAME", help="the model's name at --base-url")
    group.addoption(
        "--record", type=Path, metavar="PATH", help="the engine record of the server at --base-url"
    )
    group.addoption(
        "--patience",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="how long a play may take that names no time of its own (default: %(default)s)",
    )
    group.addoption(
        "--minutes", type=float, default=5.0, help="of gpu_e2e/soak (default: %(default)s)"
    )
    group.addoption(
        "--reports", type=Path, default=REPORTS, metavar="FOLDER", help="default: %(default)s"
    )


@dataclass(frozen=True, slots=True)
class Options:
    """The options, read and checked."""

    device: Device
    model: str | None
    engines: tuple[tuple[str, Mode], ...]  # backends, each in a mode
    base_url: str | None
    served_as: str
    record: Path | None
    reports: Path
    patience: float  # seconds that a play may take, unless it names its own

    @property
    def same_tokens(self) -> bool:
        """Whether the same request always gets the same tokens, whatever else is in the batch."""
        return self.device == "cpu"


def read(config: pytest.Config) -> Options:
    """Raises pytest.UsageError where options do not go together."""

    def given(name: str, default: Any = None) -> Any:
        # Without its folder on the command line the conftest comes too late to add options.
        return config.getoption(name, default)

    base_url = given("base_url")
    if base_url is None and (given("served_as") or given("record")):
        raise pytest.UsageError("gpu_e2e: --served-as and --record go with --base-url")
    if base_url is not None:
        parts = urllib.parse.urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.path.rstrip("/").endswith("/v1"):
            raise pytest.UsageError(f"gpu_e2e: --base-url {base_url!r}: write http://HOST:PORT/v1")
        if not given("served_as"):
            raise pytest.UsageError("gpu_e2e: --base-url needs --served-as, the model's name there")
        for name in ("model", "backend", "mode"):
            if given(name):
                raise pytest.UsageError(f"gpu_e2e: --{name} is the server's own at --base-url")
    return Options(
        device=given("device", "cuda"),
        model=given("model"),
        engines=_engines(given("backend") or BACKENDS, given("mode") or MODES),
        base_url=base_url and base_url.rstrip("/"),
        served_as=given("served_as") or "tiny",
        record=given("record"),
        reports=given("reports", REPORTS),
        patience=given("patience", 60.0),
    )


def _engines(backends: Sequence[str], modes: Sequence[Mode]) -> tuple[tuple[str, Mode], ...]:
    found: list[tuple[str, Mode]] = []
    for text in backends:
        name, slash, only = text.partition("/")
        if slash and only not in MODES:
            raise pytest.UsageError(f"gpu_e2e: --backend {text!r}: write NAME or NAME/sync|async")
        found += [(name, mode) for mode in MODES if (mode == only if slash else mode in modes)]
    return tuple(dict.fromkeys(found))


def minutes(config: pytest.Config) -> float:
    """How long the soak goes on. Raises pytest.UsageError unless it is a time."""
    given = float(config.getoption("minutes"))
    if not 0 < given < float("inf"):
        raise pytest.UsageError(f"gpu_e2e: --minutes {given}: give more than 0")
    return given


def need_device(options: Options) -> None:
    """Raises pytest.UsageError if a server is to run on CUDA and there is none."""
    if options.base_url is not None or options.device == "cpu":
        return
    try:
        import torch
    except ImportError:
        raise pytest.UsageError(NO_CUDA + " (and torch is not installed)") from None
    if not torch.cuda.is_available():
        raise pytest.UsageError(NO_CUDA)
