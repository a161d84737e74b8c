"""Start a real vLLM server for a test or the demo, and always stop it.

with Server.start(model, flags=["--max-num-seqs", "64"], log=path) as server:
    … server.base_url …
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from gpu_e2e.engine import depth2

Device = Literal["cpu", "cuda"]
Mode = Literal["sync", "async"]

READY_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 15.0
_POLL_S = 0.2
# Killed processes of a container whose first process does not reap stay as zombies: do not wait on.
_REAP_TIMEOUT_S = 5.0
_TAIL_LINES = 40


class ServerFailed(RuntimeError):
    """The server died, or was not ready in time. The message ends with the tail of its log."""


@dataclass(frozen=True)
class Engine:
    """How an engine is to run: where, and whether a step is dispatched before the last is in."""

    device: Device = "cpu"
    mode: Mode = "sync"

    def flags(self) -> list[str]:
        """The `vllm serve` flags for it."""
        flags = ["--async-scheduling" if self.mode == "async" else "--no-async-scheduling"]
        if self.device == "cpu":
            # The tiny model gains nothing from compilation, which would take minutes.
            flags.append("--enforce-eager")
        return flags

    def env(self) -> dict[str, str]:
        """The environment variables for it."""
        env = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
        # Three processes import thousands of files one after the other: let the first one keep
        # what it compiled, whatever this process was told.
        env["PYTHONDONTWRITEBYTECODE"] = ""
        if self.device == "cpu":
            env["VLLM_CPU_KVCACHE_SPACE"] = "1"
            if self.mode == "async":
                env[depth2.SWITCH] = "1"
        return env


def free_port() -> int:
    """A TCP port of the loopback interface that was free a moment ago."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Server:
    """A running server. `base_url` is its OpenAI address; use it as a context manager."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    command: list[str]

    @property
    def root_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        return self.root_url + "/v1"

    @classmethod
    def start(
        cls,
        model: str | Path,
        *,
        log: Path,
        engine: Engine | None = None,
        flags: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        served_name: str = "tiny",
        ready_timeout_s: float = READY_TIMEOUT_S,
        command: Sequence[str] = (sys.executable, "-m", "gpu_e2e.engine.vllm_command", "serve"),
    ) -> Server:
        """Start a server and return once /health answers.

        Raises ServerFailed if it dies first or is not ready in time; nothing is left running then,
        nor when the caller is interrupted while it waits.
        """
        engine = engine or Engine()
        server = cls._spawn(model, log, engine, flags, env or {}, served_name, command)
        try:
            server._wait_until_ready(ready_timeout_s)
        except BaseException:
            server.stop()
            raise
        return server

    @classmethod
    def _spawn(
        cls,
        model: str | Path,
        log: Path,
        engine: Engine,
        flags: Sequence[str],
        env: Mapping[str, str],
        served_name: str,
        command: Sequence[str],
    ) -> Server:
        port = free_port()
        full = [*command, str(model), "--host", "127.0.0.1", "--port", str(port)]
        full += ["--served-model-name", served_name, *engine.flags(), *flags]
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as sink:
            process = subprocess.Popen(
                full,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, **engine.env(), **env},
                # Its own group: the engine and its workers are stopped with it, and Ctrl-C in a
                # terminal reaches us alone, so that we stop it in order.
                start_new_session=True,
            )
        return cls(process=process, port=port, log=log, command=full)

    def alive(self) -> bool:
        """Whether the server's first process still runs."""
        return self.process.poll() is None

    def healthy(self) -> bool:
        """Whether /health answers 200 now."""
        try:
            with urllib.request.urlopen(self.root_url + "/health", timeout=2.0) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _wait_until_ready(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if not self.alive():
                raise ServerFailed(self._why(f"ended with status {self.process.returncode}"))
            if self.healthy():
                return
            time.sleep(_POLL_S)
        raise ServerFailed(self._why(f"was not ready after {timeout_s:.0f} s"))

    def _why(self, what: str) -> str:
        return f"the server {what}; log {self.log}, its last lines:\n{self.tail()}"

    def tail(self, lines: int = _TAIL_LINES) -> str:
        """The last lines of its log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError as error:
            return f"(no log: {error})"

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int | None:
        """Stop it: SIGTERM, then SIGKILL to its whole process group after `timeout_s`.

        Returns the first process's exit status.
        """
        with _interrupts_held():
            if self.alive():
                self.process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(timeout_s)
            # Whatever of the group outlived its leader must not hold the port or the memory.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self._wait_for_group()
            return self.process.returncode

    def _wait_for_group(self) -> None:
        deadline = time.monotonic() + _REAP_TIMEOUT_S
        with contextlib.suppress(ProcessLookupError, PermissionError):
            while time.monotonic() < deadline:
                os.killpg(self.process.pid, 0)
                time.sleep(0.01)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold back Ctrl-C: a second one while we stop a server would leave it running."""
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # not the main thread: Ctrl-C does not come here
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
