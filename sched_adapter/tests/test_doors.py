"""The front end's doors: with limits, a bad identity or a beam search is the client's error."""

import inspect
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm", reason="the doors stand in vLLM's front end")

from vllm.entrypoints.generate.beam_search.offline import BeamSearchOfflineMixin
from vllm.entrypoints.generate.beam_search.online import BeamSearchOnlineMixin
from vllm.entrypoints.openai.responses.serving import OpenAIServingResponses
from vllm.entrypoints.serve.exception_handling.error_response import create_error_response
from vllm.sampling_params import SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.input_processor import InputProcessor

from sched_adapter import config, doors
from sched_adapter.config import OutputRateConfig


@pytest.fixture(autouse=True)
def installed() -> None:
    doors.install()


def vllm_config(limits: bool) -> Any:
    made = SimpleNamespace(scheduler_config=SimpleNamespace())
    if limits:
        config.attach(made, OutputRateConfig(Fraction(1)))
    return made


def params(identity: Any) -> SamplingParams:
    return SamplingParams(extra_args={"output_rate_user": identity})


class Reached(Exception):
    """vLLM's own method has the word."""


class Bare:
    """Stands in for one of vLLM's objects; anything beyond the config is stock's business."""

    def __init__(self, limits: bool) -> None:
        self.vllm_config = vllm_config(limits)

    def __getattr__(self, name: str) -> Any:
        raise Reached(name)


BAD = [1, 5.5, [], ["a", 1], "", "x" * 300, "a\n", None, float("nan")]


@pytest.mark.parametrize("identity", BAD)
def test_a_bad_identity_is_a_400_that_names_the_field(identity: Any) -> None:
    with pytest.raises(ValueError, match="output_rate_user") as caught:
        InputProcessor._validate_params(Bare(limits=True), params(identity), ("generate",))
    answer = create_error_response(caught.value).error
    assert answer.code == 400
    assert answer.param == "vllm_xargs.output_rate_user"
    assert "vllm_xargs.output_rate_user" in answer.message
    assert len(answer.message) < 300


@pytest.mark.parametrize("identity", BAD)
def test_a_streams_bad_identity_is_known_before_the_first_item(identity: Any) -> None:
    engine = Bare(limits=True)
    with pytest.raises(doors.RequestRefused):
        AsyncLLM.generate(engine, "prompt", params(identity), "id")
    with pytest.raises(doors.RequestRefused):
        AsyncLLM.generate(engine, prompt="p", sampling_params=params(identity), request_id="id")


@pytest.mark.parametrize("identity", BAD)
def test_a_response_streams_bad_identity_too(identity: Any) -> None:
    generate = OpenAIServingResponses._generate_with_builtin_tools
    serving = SimpleNamespace(engine_client=Bare(limits=True))
    with pytest.raises(doors.RequestRefused):
        generate(serving, request_id="r", engine_input={}, sampling_params=params(identity))
    with pytest.raises(doors.RequestRefused):
        generate(serving, "r", {}, params(identity), None)
    serving = SimpleNamespace(engine_client=Bare(limits=False))
    assert inspect.isasyncgen(generate(serving, "r", {}, params(identity), None))


@pytest.mark.parametrize("identity", BAD)
def test_without_limits_nothing_is_checked(identity: Any) -> None:
    with pytest.raises(Reached):
        InputProcessor._validate_params(Bare(limits=False), params(identity), ("generate",))
    assert inspect.isasyncgen(AsyncLLM.generate(Bare(limits=False), "p", params(identity), "id"))


@pytest.mark.parametrize(
    "good", [params("用户"), SamplingParams(), SamplingParams(extra_args={"other": 1})]
)
def test_a_good_identity_and_none_pass(good: SamplingParams) -> None:
    with pytest.raises(Reached):
        InputProcessor._validate_params(Bare(limits=True), good, ("generate",))
    assert inspect.isasyncgen(AsyncLLM.generate(Bare(limits=True), "p", good, "id"))


def test_beam_search_is_refused_with_limits_only() -> None:
    for limits, expected in ((True, doors.RequestRefused), (False, Reached)):
        llm = SimpleNamespace(llm_engine=Bare(limits))
        with pytest.raises(expected):
            BeamSearchOfflineMixin.beam_search(llm, [], SimpleNamespace(beam_width=2, **BEAMS))
    serving = SimpleNamespace(engine_client=Bare(limits=True))
    with pytest.raises(ValueError, match="beam search is refused") as caught:
        BeamSearchOnlineMixin.beam_search(serving, prompt={}, request_id="id", params=None)
    assert create_error_response(caught.value).error.code == 400
    serving = SimpleNamespace(engine_client=Bare(limits=False))
    beams = BeamSearchOnlineMixin.beam_search(serving, prompt={}, request_id="id", params=None)
    assert inspect.isasyncgen(beams)


BEAMS = {"max_tokens": 1, "temperature": 0.0, "ignore_eos": False, "length_penalty": 1.0}


def test_the_doors_are_hung_once() -> None:
    before = InputProcessor._validate_params, AsyncLLM.generate
    doors.install()
    assert (InputProcessor._validate_params, AsyncLLM.generate) == before
