"""The launcher against small programs of our own: ready, dead, deaf, and always stopped."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import threading
import time

import pytest

from gpu_e2e.engine.launch import Engine, Server, ServerFailed

HEALTHY = """
    import http.server, os, subprocess, sys
    port = int(sys.argv[sys.argv.index("--port") + 1])
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print("args", sys.argv[1:], "child", child.pid, flush=True)
    print("env", os.environ.get("VLLM_CPU_KVCACHE_SPACE"), os.environ.get("MINE"), flush=True)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/health" else 404)
            self.end_headers()

    http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def program(tmp_path, code):
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(code))
    return (sys.executable, str(path))


def gone(pid):
    """Whether the process has ended (a zombie has)."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def start(tmp_path, code, **more):
    return Server.start(
        "the-model", log=tmp_path / "log.txt", command=program(tmp_path, code), **more
    )


def child_of(server):
    return int(server.log.read_text().splitlines()[0].rpartition(" ")[2])


def test_ready_flags_and_environment(tmp_path):
    with start(tmp_path, HEALTHY, flags=["--max-num-seqs", "7"], env={"MINE": "yes"}) as server:
        assert server.healthy()
        assert server.base_url == f"http://127.0.0.1:{server.port}/v1"
        log = server.log.read_text()
        child = child_of(server)
    assert "'the-model', '--host', '127.0.0.1'" in log
    assert "'--max-num-seqs', '7'" in log
    assert "'--no-async-scheduling'" in log
    assert "env 1 yes" in log
    assert not server.alive()
    assert gone(child), "what the server had started is stopped with it"


def test_a_server_that_dies_is_an_error_with_the_tail_of_its_log(tmp_path):
    with pytest.raises(ServerFailed, match="status 3") as caught:
        start(tmp_path, "import sys; print('bad flag: --no-such'); sys.exit(3)")
    assert "bad flag: --no-such" in str(caught.value)
    assert (tmp_path / "log.txt").exists()


def test_a_server_that_is_never_ready_is_stopped(tmp_path):
    code = "import os, time; print('args child', os.getpid(), flush=True); time.sleep(600)"
    with pytest.raises(ServerFailed, match="not ready after 1 s"):
        start(tmp_path, code, ready_timeout_s=1.0)
    assert gone(int((tmp_path / "log.txt").read_text().split()[-1]))


def test_a_server_deaf_to_sigterm_is_killed(tmp_path):
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    server = start(tmp_path, deaf + textwrap.dedent(HEALTHY))
    child = child_of(server)
    assert server.stop(timeout_s=0.2) == -signal.SIGKILL
    assert gone(child)
    assert server.stop() == -signal.SIGKILL, "twice is once"


@pytest.fixture
def ctrl_c():
    """Ctrl-C as at a terminal: a shell starts what it puts in the background deaf to it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_while_waiting_leaves_nothing(tmp_path):
    code = "import os, time; print('args child', os.getpid(), flush=True); time.sleep(600)"
    log = tmp_path / "log.txt"

    def interrupt_once_it_runs():
        while not (log.exists() and log.read_text()):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt_once_it_runs).start()
    with pytest.raises(KeyboardInterrupt):
        start(tmp_path, code)
    assert gone(int(log.read_text().split()[-1]))


def test_the_engine_says_how_it_runs():
    assert "--async-scheduling" in Engine("cpu", "async").flags()
    assert Engine("cpu", "async").env()["OUTPUT_RATE_E2E_DEPTH2"] == "1"
    assert "OUTPUT_RATE_E2E_DEPTH2" not in Engine("cpu", "sync").env()
    cuda = Engine("cuda", "async")
    assert "--enforce-eager" not in cuda.flags()
    assert not {"OUTPUT_RATE_E2E_DEPTH2", "VLLM_CPU_KVCACHE_SPACE"} & set(cuda.env())
