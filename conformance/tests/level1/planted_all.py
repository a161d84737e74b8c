"""All faults, and the limiters from which they were made."""

import planted_state
import planted_takes
from plain_limiters import Plain, PlainWindow
from planted import Fault, promise

FAULTS = [
    each
    for module in (planted_takes, planted_state)
    for each in vars(module).values()
    if isinstance(each, Fault)
]
PLAIN = promise("plain", Plain)
PLAIN_UNNAMED = promise("plain, naming no definition", Plain, decides_like=None)
PLAIN_WINDOW = promise("plain window", PlainWindow, **planted_takes.LOG)
ALL = [PLAIN, PLAIN_UNNAMED, PLAIN_WINDOW, *(fault.contract for fault in FAULTS)]

WINDOW_RULES = {"L-MODEL-1"} | {
    rule
    for fault in FAULTS
    if isinstance(fault.contract.make, type) and issubclass(fault.contract.make, PlainWindow)
    for rule in fault.caught_by
}
