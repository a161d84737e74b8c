"""The way to a first token, split from a record and a client's stream."""

from __future__ import annotations

from conformance.endpoint.first_token import (
    SOON_NS,
    FirstToken,
    first_token,
    held,
    steps_of_others,
    undelayed,
)
from conformance.endpoint.record import EngineRecord
from conformance.endpoint.trace import Ask, Stream

META = {"e": "meta", "rates": {}, "default_rate": None}


def arrive(ns, req, user="free"):
    return {"e": "arrive", "ns": ns, "user": user, "req": req}


def dispatch(ns, req, user="free"):
    return {"e": "dispatch", "ns": ns, "step": ns, "user": user, "req": req, "charged": False}


def output(ns, req, user="free", n=1):
    return {"e": "output", "ns": ns, "user": user, "req": req, "n": n}


def stream(request_id="cmpl-1", token_ns=(50, 60)):
    return Stream(Ask("free", "Hi", 2), 10, token_ns=list(token_ns), request_id=request_id)


WAY = [
    arrive(14, "cmpl-1-0-a1"),
    dispatch(17, "cmpl-1-0-a1"),
    output(40, "cmpl-1-0-a1"),
    dispatch(41, "cmpl-1-0-a1"),
    output(58, "cmpl-1-0-a1"),
]


def record(*events):
    return EngineRecord.of([META, *events])


def test_the_four_parts_add_up_to_the_clients_time_to_first_token():
    way = first_token(record(*WAY), stream())
    assert way == FirstToken(10, 14, 17, 40, 50)
    assert way.parts() == {"in": 4, "queue": 3, "step": 23, "out": 10}
    assert sum(way.parts().values()) == stream().first_token_ns()


def test_only_the_streams_own_request_counts():
    others = [arrive(1, "cmpl-2-0-b"), dispatch(2, "cmpl-2-0-b"), output(3, "cmpl-2-0-b")]
    way = first_token(record(*others, *WAY), stream())
    assert way is not None
    assert (way.arrived_ns, way.dispatched_ns, way.output_ns) == (14, 17, 40)


def test_a_request_that_comes_again_arrived_when_it_first_came():
    way = first_token(record(*WAY, arrive(45, "cmpl-1-0-a1")), stream())
    assert way is not None
    assert way.arrived_ns == 14


def test_what_lacks_a_part_of_its_way_has_none():
    whole = record(*WAY)
    assert first_token(whole, stream(request_id=None)) is None
    assert first_token(whole, stream(token_ns=())) is None
    assert first_token(whole, stream(request_id="cmpl-9")) is None
    assert first_token(record(*WAY[1:]), stream()) is None
    assert first_token(record(WAY[0], WAY[2]), stream()) is None
    assert first_token(record(WAY[0], WAY[1]), stream()) is None


def test_several_requests_of_one_stream_have_no_first_token():
    second = [arrive(14, "cmpl-1-1-a2"), dispatch(17, "cmpl-1-1-a2"), output(40, "cmpl-1-1-a2")]
    assert first_token(record(*WAY, *second), stream()) is None


def test_steps_of_others_last_to_the_output_of_the_last_whom_they_served():
    found = record(
        *(dispatch(20, req, "flood") for req in ("f1", "f2")),
        dispatch(20, "own"),
        output(27, "f1", "flood"),
        output(28, "f2", "flood"),
        output(35, "own"),
        dispatch(40, "own"),
        output(48, "own"),
        dispatch(50, "f1", "flood"),
        output(56, "f1", "flood"),
        dispatch(60, "f2", "flood"),  # lost
    )
    assert steps_of_others(found, "free") == [(20, 28), (50, 56)]


def test_of_two_steps_in_flight_each_ends_with_its_own_output():
    found = record(
        dispatch(20, "f", "flood"),
        dispatch(25, "f", "flood"),
        output(28, "f", "flood"),
        output(36, "f", "flood"),
    )
    assert steps_of_others(found, "free") == [(20, 28), (25, 36)]


def test_a_step_is_met_if_any_of_it_lies_on_the_way():
    steps = [(10, 20), (100, 120)]
    ways = {
        "before": FirstToken(0, 1, 2, 3, 9),
        "into": FirstToken(5, 6, 7, 8, 11),
        "from": FirstToken(19, 21, 22, 23, 30),
        "between": FirstToken(21, 22, 23, 24, 99),
        "over": FirstToken(90, 95, 121, 130, 131),
        "after": FirstToken(121, 122, 123, 124, 125),
    }
    free, met = undelayed(ways.values(), steps)
    assert free == [ways["before"], ways["between"], ways["after"]]
    assert met == [ways["into"], ways["from"], ways["over"]]
    assert undelayed(ways.values(), []) == ([*ways.values()], [])


def test_who_comes_as_a_step_of_others_ends_was_held_by_it():
    ms = 1_000_000
    steps = [(10 * ms, 20 * ms), (100 * ms, 120 * ms)]

    def arrived(ns):
        return FirstToken(0, ns, ns + 1, ns + 2, ns + 3)

    during, long_after = arrived(15 * ms), arrived(20 * ms + SOON_NS)
    at_once, soon, last = arrived(20 * ms), arrived(20 * ms + SOON_NS - 1), arrived(120 * ms + 1)
    waited, rest = held([during, at_once, soon, long_after, last], steps)
    assert waited == [at_once, soon, last]
    assert rest == [during, long_after]
    assert held([during], []) == ([], [during])


def test_of_two_steps_under_way_the_earlier_may_end_later():
    way = FirstToken(35, 36, 37, 38, 39)
    assert undelayed([way], [(20, 36), (25, 34)]) == ([], [way])
