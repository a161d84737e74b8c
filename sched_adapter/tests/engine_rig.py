"""A real engine loop with no model: stock `EngineCoreProc`, its sockets, a scripted worker."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import zmq
from vllm.v1.engine import EngineCoreOutputs, EngineCoreRequestType, core
from vllm.v1.engine.core import EngineCoreProc, EngineShutdownState
from vllm.v1.engine.utils import EngineZmqAddresses
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

from sched_adapter import engine
from sched_adapter.tests.engine_standins import (
    GatedBackend,
    ScriptedExecutor,
    make_config,
    make_request,
)


def socket_addresses(folder: Path) -> EngineZmqAddresses:
    return EngineZmqAddresses([f"ipc://{folder}/in"], [f"ipc://{folder}/out"])


class SocketEngine(EngineCoreProc):
    """Stock but for the handshake with a front end, which would only tell it these addresses."""

    rig_addresses: EngineZmqAddresses

    @contextlib.contextmanager
    def _perform_handshakes(self, *args: Any) -> Iterator[EngineZmqAddresses]:
        yield self.rig_addresses


class FrontEnd:
    """The other end of the engine's sockets."""

    def __init__(self, folder: Path) -> None:
        context = zmq.Context.instance()
        addresses = socket_addresses(folder)
        self._to_engine = context.socket(zmq.ROUTER)
        self._to_engine.bind(addresses.inputs[0])
        self._from_engine = context.socket(zmq.PULL)
        self._from_engine.bind(addresses.outputs[0])
        self._decoder = MsgpackDecoder(EngineCoreOutputs)

    def greet(self, timeout_s: float = 120) -> None:
        """Until the engine's first message, which says who it is."""
        assert self._to_engine.poll(timeout_s * 1000), "the engine did not start"
        self._identity = self._to_engine.recv_multipart()[0]

    def _send(self, kind: EngineCoreRequestType, message: Any) -> int:
        frames = MsgpackEncoder().encode(message)
        sent_ns = time.monotonic_ns()
        self._to_engine.send_multipart([self._identity, kind.value, *frames])
        return sent_ns

    def add(self, *args: Any, **kwargs: Any) -> int:
        return self._send(EngineCoreRequestType.ADD, make_request(*args, **kwargs))

    def abort(self, req_id: str) -> int:
        return self._send(EngineCoreRequestType.ABORT, [req_id])

    def call(self, method: str, *args: Any) -> int:
        return self._send(EngineCoreRequestType.UTILITY, (0, 1, method, args))

    def receive(self, timeout_s: float = 5) -> Any:
        """The next message of the engine."""
        assert self._from_engine.poll(timeout_s * 1000), f"nothing came in {timeout_s} s"
        return self._decoder.decode(self._from_engine.recv_multipart(copy=False))

    def receive_tokens(self, req_id: str, count: int = 1) -> int:
        """When `count` further tokens of the request had come, in monotonic ns."""
        while count > 0:
            for output in self.receive().outputs:
                if output.request_id == req_id:
                    count -= len(output.new_token_ids)
        return time.monotonic_ns()

    def disconnect(self) -> None:
        self._to_engine.close(0)
        self._from_engine.close(0)


class Rig(FrontEnd):
    """The engine on a thread of its own; the test is the front end."""

    def __init__(self, folder: Path, config: Any) -> None:
        super().__init__(folder)
        SocketEngine.rig_addresses = socket_addresses(folder)
        self.engine: Any = SocketEngine(config, True, "", ScriptedExecutor, False)
        self.greet()
        manager = self.engine.structured_output_manager
        manager.executor, manager.backend = ThreadPoolExecutor(1), GatedBackend()
        self.scheduler = self.engine.scheduler
        self.executor = self.engine.model_executor
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Rig:
        self.thread.start()
        return self

    def _run(self) -> None:
        try:
            self.engine.run_busy_loop()
        except SystemExit:  # its way to end at shutdown
            pass
        except BaseException as error:
            self.error = error
            raise

    def until(self, condition: Any, timeout_s: float = 5) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "the engine did not get there"
            time.sleep(0.0005)

    def settle(self, waits: int = 2) -> None:
        """Until the engine has waited for quota further `waits` times and is inside another."""
        goal = len(self.scheduler.waits) + waits
        self.until(lambda: len(self.scheduler.waits) >= goal)
        time.sleep(0.01)

    def told_worker_ns(self, told: Callable[[Any], bool]) -> int:
        """When the worker was first sent an output that `told` recognises, in monotonic ns."""
        self.until(lambda: any(map(told, self.executor.seen)))
        return next(
            ns
            for ns, output in zip(self.executor.seen_ns, self.executor.seen, strict=False)
            if told(output)
        )

    def close(self) -> None:
        self.engine.shutdown_state = EngineShutdownState.REQUESTED
        self.engine.input_queue.put_nowait((EngineCoreRequestType.WAKEUP, None))
        self.thread.join(5)
        assert not self.thread.is_alive(), "the engine did not stop"
        self.engine.shutdown()
        self.disconnect()


def run_engine_process(folder: Path, asynchronous: bool) -> None:
    """A whole engine process, as vLLM starts it, with its handlers of signals."""
    engine.install()
    SocketEngine.rig_addresses = socket_addresses(folder)
    core.EngineCoreProc = SocketEngine
    core.EngineCoreProc.run_engine_core(
        vllm_config=make_config(folder, asynchronous=asynchronous),
        local_client=True,
        handshake_address="",
        executor_class=ScriptedExecutor,
        log_stats=False,
    )
