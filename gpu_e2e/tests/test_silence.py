"""A long pause is judged: exactly by the engine's instants, and with slack by the client's."""

from __future__ import annotations

from fractions import Fraction

import pytest

from conformance.endpoint.promise import Even, Log
from gpu_e2e.suite.silence import least_pause_ns, pauses

LIMIT = Fraction("0.04")
EVEN, LOG = Even(LIMIT), Log(LIMIT)
SECOND = 1_000_000_000
START = 33_124_964_142_336


def broken(gap_ns, read_gap_ns=None, promise=EVEN, limit=LIMIT):
    """The broken rules of a stream of two tokens; read 10 ms after dispatch unless told."""
    read = START + 10_000_000
    found = pauses(
        [START, START + gap_ns],
        [read, read + (gap_ns if read_gap_ns is None else read_gap_ns)],
        promise,
        limit,
    )
    return {verdict.rule for verdict in found if not verdict.ok}


@pytest.mark.parametrize(("promise", "least"), [(EVEN, 24_900_000_000), (LOG, 25 * SECOND)])
def test_the_engine_s_pause_is_exact(promise, least):
    assert least_pause_ns(promise) == least
    assert broken(least, promise=promise) == set()
    assert broken(least - 1, promise=promise) == {"paused"}
    # It is the bound of the conformance suite, seen from the other side.
    assert promise.worst([0, least]) is None
    assert promise.worst([0, least - 1]) is not None


def test_of_a_rate_that_is_no_whole_number_of_ns():
    for promise in (Even(Fraction(1, 3) * 2), Log(Fraction(3, 7)), Even(Fraction(3), 100)):
        least = least_pause_ns(promise)
        assert promise.worst([0, least]) is None
        assert promise.worst([0, least - 1]) is not None


def test_a_first_token_that_was_read_late_shortens_the_client_s_pause():
    # As seen on a busy host: the engine was exact, the client's first token a second late.
    assert broken(24_900_357_863, 23_900_000_000) == set()
    assert broken(24_900_357_863, 14_900_000_000) == {"silent"}


def test_twice_the_rate_is_caught_by_either_clock():
    assert broken(12_400_000_000) == {"paused", "silent"}
    # Nor does it help that the engine's own settings are wrong as well.
    assert broken(12_400_000_000, promise=Even(2 * LIMIT)) == {"paused", "silent"}


def test_without_a_pause():
    assert broken(10_000_000) == {"paused", "silent"}
    # Both tokens in one chunk.
    assert broken(24_900_000_000, 0) == {"silent"}


def test_a_pause_that_is_not_there_is_none():
    found = pauses([START], [START], EVEN, LIMIT)
    assert [verdict.ok for verdict in found] == [False, False]
    found = pauses([], [], EVEN, LIMIT)
    assert [verdict.ok for verdict in found] == [False, False]


def test_a_short_pause_is_not_judged_with_a_slack_that_swallows_it():
    slow = Fraction(1, 5)
    assert broken(5 * SECOND, promise=Even(slow), limit=slow) == {"silent"}
