"""planted.md lists the faults that there are."""

from conformance.tests import planted_list


def test_the_list_of_planted_faults_is_current():
    command = "python conformance/tests/planted_list.py"
    assert planted_list.PAGE.read_text(encoding="utf-8") == planted_list.page(), f"run {command}"
