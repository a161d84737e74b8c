"""A prompt with a seed is never cut for lack of quota on the CPU build, whose worker that ends."""

from __future__ import annotations

import pytest

from sched_adapter.tests.pressure.house import MS, house

PROMPT = 20


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("cpu", [True, False])
def test_a_seeded_prompt_waits_whole_on_the_cpu(depth: int, cpu: bool) -> None:
    engine = house(depth, rates={"a": 10})
    engine.scheduler._seed_forbids = cpu
    engine.add("spends", user="a", prompt=4, max_tokens=2)
    engine.run(4)
    engine.add("plain", user="a", prompt=PROMPT, max_tokens=1)
    engine.add("seeded", user="a", prompt=PROMPT, max_tokens=1, seed=7)
    engine.add("other", user="b", prompt=PROMPT, max_tokens=1, seed=7)
    chunks: dict[str, list[int]] = {}
    for _ in range(80):
        for name, tokens in engine.step(10 * MS).scheduled.items():
            chunks.setdefault(name, []).append(tokens)
    assert chunks["plain"] == [PROMPT - 1, 1]
    assert chunks["seeded"] == ([PROMPT] if cpu else [PROMPT - 1, 1])
    assert chunks["other"] == [PROMPT]
    for name in ("plain", "seeded", "other"):
        assert engine.requests[name].finish_reason == "length"


def test_it_goes_by_the_device_of_the_engine() -> None:
    scheduler = house().scheduler
    assert scheduler._seed_forbids is (scheduler.vllm_config.device_config.device_type == "cpu")
    assert scheduler._seed_forbids  # here every engine is one for the CPU
