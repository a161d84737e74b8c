"""Of a server that was told to end, one traceback is vLLM's own race; any other is a fault."""

from __future__ import annotations

import pytest

from gpu_e2e.suite.tracebacks import unexpected

# As vLLM 0.32.0 logged it, with six requests throttled; the paths are shortened.
ENDING = """\
(APIServer pid=11) INFO 11-30 05:22:36 [launcher.py:254] [shutdown] API server: shutdown triggered
(APIServer pid=11) INFO 11-30 05:22:36 [core_client.py:772] [shutdown] MPClient: stopping engine manager
(APIServer pid=11) WARNING 11-30 05:22:36 [utils.py:653] [shutdown] Process manager: force killing remaining process EngineCore pid 12
(EngineCore pid=12) INFO 11-30 05:22:36 [core.py:1454] [shutdown] EngineCore: trigger received signal=SIGTERM
(EngineCore pid=12) INFO 11-30 05:22:36 [core.py:1644] [shutdown] EngineCore: aborting in-flight requests count=6
(EngineCore pid=12) INFO 11-30 05:22:36 [core.py:1499] [shutdown] EngineCore: exiting busy loop
(Worker pid=13) INFO 11-30 05:22:36 [multiproc_executor.py:843] Parent process exited, terminating worker queues
(APIServer pid=11) WARNING 11-30 05:22:36 [system_utils.py:225] [shutdown] force killing sub process VLLM::Worker pid 13
(APIServer pid=11) INFO 11-30 05:22:36 [core_client.py:774] [shutdown] MPClient: engine manager stopped
(APIServer pid=11) INFO 11-30 05:22:36 [core_client.py:775] [shutdown] MPClient: cleaning up background resources
(APIServer pid=11) INFO 11-30 05:22:36 [core_client.py:777] [shutdown] MPClient: complete
"""  # noqa: E501
RACE = """\
(APIServer pid=11) ERROR 11-30 05:22:36 [async_llm.py:906] AsyncLLM output_handler failed.
(APIServer pid=11) ERROR 11-30 05:22:36 [async_llm.py:906] Traceback (most recent call last):
(APIServer pid=11) ERROR 11-30 05:22:36 [async_llm.py:906]   File "/site-packages/vllm/v1/engine/async_llm.py", line 849, in output_handler
(APIServer pid=11) ERROR 11-30 05:22:36 [async_llm.py:906]     outputs = await engine_core.get_output_async()
(APIServer pid=11) ERROR 11-30 05:22:36 [async_llm.py:906]               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
(APIServer pid=11) ERROR 11-30 05:22:36 [async_llm.py:906]   File "/site-packages/vllm/v1/engine/core_client.py", line 1235, in get_output_async
(APIServer pid=11) ERROR 11-30 05:22:36 [async_llm.py:906]     raise self._format_exception(outputs) from None
(APIServer pid=11) ERROR 11-30 05:22:36 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.
"""  # noqa: E501
ENDED = """\
(APIServer pid=11) INFO 11-30 05:22:36 [launcher.py:304] [shutdown] API server: shutting down FastAPI HTTP server
INFO:     Application shutdown complete.
nanobind: leaked 4 instances!
"""  # noqa: E501
ENGINE = """\
(EngineCore pid=12) ERROR 11-30 05:22:36 [core.py:1490] EngineCore encountered a fatal error.
(EngineCore pid=12) ERROR 11-30 05:22:36 [core.py:1490] Traceback (most recent call last):
(EngineCore pid=12) ERROR 11-30 05:22:36 [core.py:1490]   File "/site-packages/vllm/v1/engine/core.py", line 1, in run_busy_loop
(EngineCore pid=12) ERROR 11-30 05:22:36 [core.py:1490]   File "/site-packages/sched_adapter/scheduler.py", line 1, in schedule
(EngineCore pid=12) ERROR 11-30 05:22:36 [core.py:1490] KeyError: 'req'
"""  # noqa: E501
WORKER = """\
(Worker pid=13) Traceback (most recent call last):
(Worker pid=13)   File "/site-packages/limiters/gcra.py", line 1, in try_take
(Worker pid=13) ValueError: now_ns
"""
NOBODY = """\
Exception ignored in: <function Record.__del__ at 0x7f>
Traceback (most recent call last):
  File "/site-packages/sched_adapter/record.py", line 1, in __del__
OSError: closed
"""
OTHER = RACE.replace("EngineDeadError: EngineCore", "EngineGenerateError: EngineCore")
FRAME = '(APIServer pid=11) ERROR 11-30 05:22:36 [async_llm.py:906]   File "{}", line 1, in {}\n'


def with_frame(path, name):
    """The race, with one frame more before its last line."""
    lines = RACE.splitlines(keepends=True)
    return "".join([*lines[:-1], FRAME.format(path, name), lines[-1]])


@pytest.mark.parametrize("log", ["", ENDING + ENDED, ENDING + RACE + ENDED])
def test_vllm_s_own(log):
    assert unexpected(log) == []


def test_its_lines_may_come_between_those_of_others():
    mixed = "".join(
        f"{line}\n(EngineCore pid=12) INFO 11-30 05:22:36 [core.py:1] ending\n"
        for line in RACE.splitlines()
    )
    assert unexpected(ENDING + mixed) == []


@pytest.mark.parametrize(
    ("trace", "last"),
    [
        (ENGINE, "(EngineCore pid=12) KeyError: 'req'"),
        (WORKER, "(Worker pid=13) ValueError: now_ns"),
        (NOBODY, "no process named: OSError: closed"),
        (OTHER, "(APIServer pid=11) vllm.v1.engine.exceptions.EngineGenerateError: "),
    ],
)
def test_any_other_alone_or_beside_it(trace, last):
    for log in (ENDING + trace, ENDING + RACE + trace, trace + ENDING + RACE, trace):
        (found,) = unexpected(log)
        assert found.startswith(last)


@pytest.mark.parametrize(
    "trace",
    [
        with_frame("/site-packages/sched_adapter/plugin.py", "get_output_async"),
        with_frame("/site-packages/limiters/gcra.py", "try_take"),
        with_frame("/site-packages/vllm/v1/engine/core_client.py", "get_output_async"),
        RACE.replace("vllm/v1/engine/core_client.py", "sched_adapter/core_client.py"),
        RACE.replace("in output_handler", "in generate"),
        RACE.replace("APIServer", "EngineCore"),
        RACE.replace("(APIServer pid=11) ", ""),
        RACE.replace("async_llm.py:906", "launcher.py:1"),
        RACE.replace("AsyncLLM output_handler failed.", "Something else."),
        RACE.replace("call last):", "call last)"),
        "".join(RACE.splitlines(keepends=True)[1:]),
        "".join(RACE.splitlines(keepends=True)[:-1]),  # its end is missing
    ],
)
def test_what_only_looks_like_it(trace):
    assert len(unexpected(ENDING + trace)) == 1


def test_an_engine_that_died_before_it_was_stopped():
    """The same words, but it was not the API server that ended the engine."""
    assert len(unexpected(RACE + ENDING)) == 1
    other = ENDING.replace("pid=11", "pid=99")  # nor does another server's end explain it
    assert len(unexpected(other + RACE)) == 1


def test_what_follows_from_it_is_not_excused():
    while_handling = RACE.splitlines()[1].rsplit("]", 1)[0] + "] "
    follows = (
        f"{while_handling}\n"
        f"{while_handling}During handling of the above exception, another exception occurred:\n"
        f"{while_handling}Traceback (most recent call last):\n"
        f'{while_handling}  File "/site-packages/vllm/v1/engine/async_llm.py", line 1, in abort\n'
        f"{while_handling}RuntimeError: after it\n"
    )
    (found,) = unexpected(ENDING + RACE + follows)
    assert found == "(APIServer pid=11) RuntimeError: after it"
