"""All faults of level 2."""

import wrong_books
import wrong_pauses
import wrong_places
import wrong_turns
from wrong import Fault

FAULTS = [
    each
    for module in (wrong_books, wrong_turns, wrong_pauses, wrong_places)
    for each in vars(module).values()
    if isinstance(each, Fault)
]
ALL = [fault.contract for fault in FAULTS]
