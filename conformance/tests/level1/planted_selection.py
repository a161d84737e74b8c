"""A pytest plugin: of all rules and faults, only those that must meet."""

import planted_all

PLAIN = {planted_all.PLAIN.name, planted_all.PLAIN_WINDOW.name}


def wanted():
    """(backend, rule) pairs; with None for all rules."""
    pairs = {(name, None) for name in PLAIN}
    pairs.add((planted_all.PLAIN_UNNAMED.name, "L-MODEL-1"))
    return pairs | {(f.contract.name, rule) for f in planted_all.FAULTS for rule in f.caught_by}


def pytest_collection_modifyitems(items):
    pairs = wanted()
    items[:] = [
        item
        for item in items
        if {
            (name := item.callspec.params["contract"].name, None),
            (name, item.get_closest_marker("rule").args[0]),
        }
        & pairs
    ]
