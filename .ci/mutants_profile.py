"""A pytest plugin for `tox -e mutants`: hypothesis the same for every mutant, never shrinking.

A mutant is killed by the first example that fails; nobody reads which one it was.
"""

from hypothesis import Phase, settings

settings.register_profile(
    "mutants",
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
)
settings.load_profile("mutants")
