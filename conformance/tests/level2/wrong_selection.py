"""A pytest plugin: of all rules and wrong schedulers, only those that must meet.

`WRONG_SCHEDULERS=all` in the environment lets everything meet: which rules object to which fault?
"""

import os

import wrong_all
from first_rejection import pair_of


def pytest_collection_modifyitems(items):
    if os.environ.get("WRONG_SCHEDULERS") == "all":
        return
    pairs = {(f.name, rule) for f in wrong_all.FAULTS for rule in f.caught_by}
    items[:] = [
        item
        for item in items
        if pair_of(item) in pairs
        # Random histories would find most of them too, and take their time.
        and "whatever_comes" not in item.name
    ]
