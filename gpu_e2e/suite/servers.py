"""The servers of a run: one for each configuration, started once, at most one alive at a time."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from gpu_e2e.engine import model
from gpu_e2e.engine.launch import Engine, Mode, Server, ServerFailed
from gpu_e2e.suite import users
from gpu_e2e.suite.options import Options

# Its endpoints pause the engine, put it to sleep and reset its prefix cache.
_ENV = {"VLLM_SERVER_DEV_MODE": "1"}
# Prompts of a few hundred tokens and more take several steps.
CHUNK = 512

FLAGS = {
    # Room for everybody: what is judged is the pace.
    "roomy": [
        *("--max-model-len", "4096", "--max-num-seqs", "128"),
        *("--max-num-batched-tokens", str(CHUNK), "--enable-prompt-tokens-details"),
    ],
    # Places, active sequences and KV blocks are all scarce.
    "tight": [
        *("--max-model-len", "1024", "--max-num-seqs", "16", "--max-num-active-seqs", "4"),
        *("--max-num-batched-tokens", "256", "--enable-prompt-tokens-details"),
        *("--default-user-output-tokens-per-second", "40"),
    ],
    # Everything at once, and nobody unlimited.
    "soak": [
        *("--max-model-len", "1024", "--max-num-seqs", "20", "--max-num-active-seqs", "6"),
        *("--max-num-batched-tokens", "256", "--enable-prompt-tokens-details"),
        *("--default-user-output-tokens-per-second", "25"),
    ],
    # What the roomy one has, behind two processes that answer HTTP.
    "doors": [
        *("--max-model-len", "4096", "--max-num-seqs", "128"),
        *("--max-num-batched-tokens", str(CHUNK), "--api-server-count", "2"),
    ],
}
ACTIVE_CAP = 4
SOAK_ACTIVE_CAP = 6
PLACES = 16
# Of 128 tokens each on CPU and of 16 on CUDA: about nine times 128 tokens, while one request may
# need eight of them.
BLOCKS = {
    "tight": {"cpu": 10, "cuda": 80},
    "soak": {"cpu": 16, "cuda": 128},
}


@dataclass(frozen=True, slots=True)
class Key:
    """What a server is started for."""

    backend: str
    mode: Mode | str
    flags: str

    def __str__(self) -> str:
        return f"{self.backend}-{self.mode}-{self.flags}".replace(":", ".")


class Servers:
    """Hands out the server of a key, and stops it when another key is asked for."""

    def __init__(self, options: Options):
        self._options = options
        self._key: Key | None = None
        self._server: Server | None = None
        self._failed: dict[Key, str] = {}
        self._started: list[Key] = []

    def folder(self, key: Key) -> Path:
        """Where its log and its record are."""
        return self._options.reports / str(key)

    def of(self, key: Key) -> Server:
        """The running server of the key. Raises ServerFailed, at once if it did before."""
        if key in self._failed:
            raise ServerFailed(f"its server did not start before: {self._failed[key]}")
        if self._server is not None and self._key == key and self._server.alive():
            return self._server
        self.stop()
        folder = self.folder(key)
        if key in self._started:  # it died: its log says why
            folder.rename(f"{folder}-died-{len(self._started)}")
        shutil.rmtree(folder, ignore_errors=True)
        self._started.append(key)
        try:
            self._server = Server.start(
                self._options.model or model.cached(),
                log=folder / "server.log",
                engine=Engine(self._options.device, key.mode),  # type: ignore[arg-type]
                flags=self.flags(key),
                env=_ENV,
                served_name=self._options.served_as,
            )
        except ServerFailed as error:
            self._failed[key] = str(error)
            raise
        self._key = key
        return self._server

    def flags(self, key: Key) -> list[str]:
        """What the server of this key is started with."""
        flags = [*users.flag(), "--output-rate-limiter", key.backend, *FLAGS[key.flags]]
        if key.flags in BLOCKS:
            blocks = BLOCKS[key.flags][self._options.device]
            flags += ["--num-gpu-blocks-override", str(blocks)]
        return [*flags, "--output-rate-record", os.fspath(self.folder(key) / "record.jsonl")]

    def stop(self) -> None:
        """Stop the one that runs, if any."""
        server, self._server, self._key = self._server, None, None
        if server is not None:
            server.stop()
