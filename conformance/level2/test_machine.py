"""S3-LOST under random histories; every other rule that the machine looks at is named if broken."""

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from conformance.level2.machine import machine_of
from conformance.profiles import scaled
from conformance.rules import rule


@rule("S3-LOST-2")
def test_S3_LOST_2_whatever_comes(bench, hypothesis_settings):
    size = settings(parent=scaled(hypothesis_settings, 0.25), stateful_step_count=40)
    run_state_machine_as_test(machine_of(bench), settings=size)
