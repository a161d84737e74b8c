"""A pytest plugin: of all rules and faults, only those that must meet."""

import planted_all
from first_rejection import pair_of


def wanted():
    """(backend, rule) pairs; with None for all rules."""
    pairs = {(planted_all.PLAIN.name, None), (planted_all.PLAIN_UNNAMED.name, "L-MODEL-1")}
    pairs |= {(planted_all.PLAIN_WINDOW.name, rule) for rule in planted_all.WINDOW_RULES}
    return pairs | {(f.contract.name, rule) for f in planted_all.FAULTS for rule in f.caught_by}


def pytest_collection_modifyitems(items):
    pairs = wanted()
    items[:] = [item for item in items if {(pair_of(item)[0], None), pair_of(item)} & pairs]
