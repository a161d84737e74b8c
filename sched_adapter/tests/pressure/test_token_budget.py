"""The token budget of a step is short: long prompts of one user beside another who decodes."""

from __future__ import annotations

from conformance.contract import Contract
from sched_adapter.tests.pressure.house import NEVER, check_books, check_whole, house


def test_prompts_do_not_hold_up_a_user_who_decodes(depth: int, backend: Contract) -> None:
    """Both have quota; somebody else is out of it, so that turns are dealt.

    Who still waits for a place gets what the residents leave of the budget, as in stock vLLM.
    """
    rates = {"t": NEVER, "a": 10_000, "long": 10_000}
    engine = house(depth, backend, rates=rates, max_num_batched_tokens=32, max_model_len=512)
    engine.add("t", user="t", prompt=4, max_tokens=400)
    engine.add("a", user="a", prompt=4, max_tokens=200, ignore_eos=True)
    engine.run(8)
    for i in range(3):
        engine.add(f"long-{i}", user="long", prompt=400, max_tokens=4, ignore_eos=True)
    waited = worst = prompt_tokens = 0
    for _ in range(30):
        step = engine.step()
        waited = 0 if "a" in step.scheduled else waited + 1
        worst = max(worst, waited)
        prompt_tokens += sum(n for name, n in step.scheduled.items() if name != "a")
    assert worst <= 1, f"{worst} steps in a row without the user who decodes"
    assert prompt_tokens >= 30 * 30, "what is left of the budget goes to the prompts"
    engine.run(120)
    check_books(engine)
    check_whole(engine)
