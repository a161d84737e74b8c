"""Clock, model and contract: what needs no vLLM."""

import subprocess
import sys

import pytest

from conformance.engine.clock import ManualClock
from conformance.engine.contract import UNLIMITED, Limits
from conformance.engine.model import EOS, FIRST_TOKEN, STOP, VOCAB, ScriptedModel


def test_importing_the_packages_does_not_import_vllm():
    code = (
        "import sys, conformance, conformance.engine as e\n"
        "e.ADAPTER, e.STOCK, e.ManualClock, e.Limits, e.ScriptedModel, e.SampleJudge\n"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('vllm', 'torch')]\n"
        "sys.exit(f'imported {bad[:3]}' if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_unknown_name_of_the_package_is_an_attribute_error():
    import conformance.engine

    with pytest.raises(AttributeError, match="no attribute 'Engine'"):
        _ = conformance.engine.Engine


def test_clock_stands_still_until_told():
    clock = ManualClock(seed=7)
    start = clock()
    assert clock() == start
    assert clock.advance(5) == start + 5 == clock()
    assert clock.advance(0) == start + 5
    assert clock.elapsed_ns == 5


def test_clock_starts_far_from_zero_and_a_seed_repeats_it():
    starts = {ManualClock(seed=seed)() for seed in range(50)}
    assert len(starts) == 50
    assert min(starts) >= 2**52
    assert max(starts) + 2**60 < 2**63
    clock = ManualClock()
    assert ManualClock(seed=clock.seed)() == clock()
    assert f"seed={clock.seed}" in repr(clock)


def test_clock_goes_back_only_on_purpose():
    clock = ManualClock(start_ns=100)
    with pytest.raises(ValueError, match="advance\\(-1\\)"):
        clock.advance(-1)
    assert clock() == 100
    assert clock.jump(-40) == 60


def test_model_is_a_pure_function_of_prompt_and_position():
    model = ScriptedModel(3)
    prompt = model.prompt(9, "a")
    whole = model.completion(prompt, 20)
    assert len(whole) == 20
    assert ScriptedModel(3).completion(list(prompt), 20) == whole
    assert model.completion(prompt, 5) == whole[:5]
    assert model.completion(prompt[:-1], 20) != whole
    assert ScriptedModel(4).completion(prompt, 20) != whole
    assert model.completion(prompt, 20, sampling_seed=1) != whole


def test_model_never_says_a_special_token_by_itself():
    model = ScriptedModel()
    said = {t for name in "abcdefgh" for t in model.completion(model.prompt(3, name), 500)}
    assert min(said) >= FIRST_TOKEN > max(EOS, STOP)
    assert max(said) < VOCAB
    # Rather uniform: a constant model would hide swapped tokens.
    assert len(said) > 900


def test_model_ends_at_what_is_scripted():
    model = ScriptedModel()
    prompt = model.prompt(4)
    whole = model.completion(prompt, 10)
    assert model.completion(prompt, 10, script={6: EOS}) == [*whole[:2], EOS]
    assert model.completion(prompt, 10, script={6: STOP}) == [*whole[:2], STOP, *whole[3:]]
    assert model.completion(prompt, 10, script={6: STOP}, stops=(EOS, STOP)) == [*whole[:2], STOP]
    assert model.completion(prompt, 10, script={6: EOS}, stops=()) == [*whole[:2], EOS, *whole[3:]]
    assert model.completion(prompt, 10, max_model_len=7) == whole[:3]


def test_prompts_of_one_name_share_their_beginning():
    model = ScriptedModel()
    assert model.prompt(12, "x")[:8] == model.prompt(8, "x")
    assert model.prompt(8, "x")[0] != model.prompt(8, "y")[0]


def test_limits_are_a_value():
    assert Limits(default_rate=20) == Limits(default_rate=20)
    assert UNLIMITED.default_rate is None
    assert UNLIMITED.burst_ns == 100_000_000
