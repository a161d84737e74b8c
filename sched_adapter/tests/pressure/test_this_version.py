"""The vLLM that is installed: it fits, or limits are refused at start with what it lacks."""

from __future__ import annotations

import pytest

from sched_adapter import plugin, surface


class NothingSet:
    """Flags of which none was given."""

    def __getattr__(self, name: str) -> None:
        return None


def test_it_fits_or_is_refused_with_the_reason() -> None:
    """Run for each version by `tox -e vllm031` and `vllm033`; the default one has to fit."""
    import vllm

    missing = surface.problems()
    if not missing:
        assert vllm.__version__.startswith(("0.31.", "0.32."))
        plugin._refuse_unfit(NothingSet())
        return
    # 0.33 moved the door for requests with built-in tools; its scheduler is leaned on as it is.
    assert vllm.__version__.startswith("0.33.")
    assert [path.split(" ")[0].rpartition(".")[2] for path in missing] == [
        "_generate_with_builtin_tools"
    ]
    with pytest.raises(ValueError, match=r"do not work with vLLM 0\.33.*_builtin_tools") as caught:
        plugin._refuse_unfit(NothingSet())
    assert "\n" not in str(caught.value)
