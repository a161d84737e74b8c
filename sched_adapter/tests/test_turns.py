"""Turns without an engine: requests are plain strings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sched_adapter.turns import UNLIMITED, Line, Turns


def line(turns: Turns[str], user: str, residents: str = "", level: int = 0) -> Line[str]:
    made = turns.join(user, level, lambda name: True)
    made.residents = dict.fromkeys(residents, 0)
    return made


def everything(made: Line[str]) -> Iterator[str | None]:
    return made.in_turn(free=9, step=1, caught_up=-1)


def test_places_go_round_by_round_to_lines_and_stream_by_stream_inside_them() -> None:
    turns: Turns[str] = Turns()
    line(turns, "a", "12345"), line(turns, "b", "6"), line(turns, "c", "78")
    dealt, crowded = turns.deal(5, everything)
    assert [pick for _, pick in dealt] == ["1", "6", "7", "2", "8"]
    assert crowded


def test_what_fits_is_not_crowded() -> None:
    turns: Turns[str] = Turns()
    line(turns, "a", "12"), line(turns, "b", "3")
    dealt, crowded = turns.deal(4, everything)
    assert len(dealt) == 3
    assert not crowded


def test_a_better_level_comes_first_however_long_the_others_waited() -> None:
    turns: Turns[str] = Turns()
    line(turns, "a", "12", level=5), line(turns, "b", "34", level=0)
    assert [pick for _, pick in turns.deal(3, everything)[0]] == ["3", "4", "1"]


def test_a_served_line_goes_to_the_end_so_all_share_alike() -> None:
    turns: Turns[str] = Turns()
    served = dict.fromkeys("abcdefg", 0)
    for user in served:
        line(turns, user, "123")
    for _ in range(25):
        dealt, _ = turns.deal(4, everything)
        for made, _ in dealt:
            served[made.user.name] += 1
            turns.to_the_end(made)
    assert max(served.values()) - min(served.values()) <= 1


def test_a_line_serves_its_streams_in_rotation() -> None:
    made = line(Turns(), "a", "123")
    for step, expected in enumerate("123123"):
        assert next(made.in_turn(0, step, -1)) == expected
        made.serve(expected, step)


def test_a_waiting_request_takes_its_turn_among_residents_by_when_it_got_in_line() -> None:
    made = line(Turns(), "a", "12")
    made.serve("1", 4)
    made.queued = 2
    assert list(made.in_turn(1, 5, -1)) == ["2", "1", None]  # one place: one stands in line, now
    made.serve("2", 6)
    assert list(made.in_turn(2, 7, -1)) == ["1", None, "2", None]


def test_of_two_that_tie_the_waiting_request_goes_first() -> None:
    made = line(Turns(), "a", "1")
    made.queued = 1
    list(made.in_turn(1, 5, -1))
    made.serve("1", 5)
    assert list(made.in_turn(1, 6, -1)) == [None, "1"]


def test_all_who_wait_have_their_turn_while_there_are_places() -> None:
    made = line(Turns(), "a", "1")
    made.queued = 3
    assert list(made.in_turn(3, 5, -1)) == ["1", None, None, None]


def test_places_that_are_gone_are_not_dealt_to_those_who_stood_in_line_for_them() -> None:
    made = line(Turns(), "a", "1")
    made.queued = 3
    list(made.in_turn(3, 5, -1))
    made.serve("1", 6)
    assert list(made.in_turn(1, 7, -1)) == [None, "1"]
    assert list(made.in_turn(3, 7, -1)) == [None, None, None, "1"]


def test_without_a_place_nobody_waiting_has_a_turn() -> None:
    made = line(Turns(), "a", "1")
    made.queued = 3
    assert list(made.in_turn(0, 5, -1)) == ["1"]


def test_steps_that_served_everybody_count_as_a_turn_of_each() -> None:
    made = line(Turns(), "a", "1")
    made.queued = 1
    list(made.in_turn(1, 5, -1))
    assert next(made.in_turn(1, 9, 8)) is None  # it stands since 5, the resident was served in 8


def test_a_turn_that_could_not_be_used_is_lost_not_kept() -> None:
    made = line(Turns(), "a", "1")
    made.serve("1", 6)
    made.queued = made.admit = 1
    made.since.append(5)
    made.pass_over(1, 7)
    assert next(made.in_turn(1, 8, -1)) == "1"
    assert (made.admit, made.missed) == (0, 7)


def test_who_lost_a_turn_stands_in_line_anew_behind_the_others() -> None:
    made = line(Turns(), "a", "1")
    made.queued = made.admit = 2
    list(made.in_turn(2, 5, -1))
    made.pass_over(1, 7)
    made.serve("1", 6)
    assert list(made.in_turn(2, 8, -1)) == [None, "1", None]  # since 5 and since 7


def test_a_line_and_a_user_begin_at_rest() -> None:
    turns: Turns[str] = Turns()
    made = turns.join("a", 0, lambda name: True)
    assert list(made.in_turn(9, 0, turns.caught_up)) == []
    assert (made.queued, made.admit, made.missed, made.shut) == (0, 0, None, False)
    user = made.user
    assert (user.granted, user.pledged, user.left, user.short) == (0, 0, 0, False)
    assert user.asked < 0  # in no step, and steps count from 0
    assert user.out_of_quota


def test_before_any_step_caught_up_a_resident_goes_before_who_came_later() -> None:
    turns: Turns[str] = Turns()
    made = line(turns, "a", "1")
    made.queued = 1
    assert list(made.in_turn(1, 1, turns.caught_up)) == ["1", None]


@pytest.mark.parametrize("limited", [False, True])
def test_a_user_whose_rate_changed_begins_anew(limited: bool) -> None:
    turns: Turns[str] = Turns()
    user = turns.join("a", 0, lambda name: not limited).user
    user.asked, user.granted, user.pledged, user.left, user.short = 5, 3, 2, 1, True
    assert turns.relimit(user, limited) == []
    assert (user.limited, list(turns.limited_awake)) == (limited, [user] * limited)
    tokens = 0 if limited else UNLIMITED
    assert (user.granted, user.pledged, user.left, user.short) == (tokens, 0, tokens, False)
    assert user.asked < 0
    assert user.out_of_quota == limited, "who has no limit is never out of quota"


def test_who_has_no_limit_has_quota_before_it_is_asked() -> None:
    turns: Turns[str] = Turns()
    assert not turns.join("a", 0, lambda name: False).user.out_of_quota
    assert turns.join("b", 0, lambda name: True).user.out_of_quota


def test_alarms_of_rates_that_changed_do_not_pile_up() -> None:
    turns: Turns[str] = Turns()
    sleepers = [line(turns, f"u{n}").user for n in range(50)]
    for user in sleepers:
        turns.sleep(user, 1_000)
    restless = line(turns, "a", "1")
    for n in range(2_000):
        turns.sleep(restless.user, 2_000 + n)
        assert turns.relimit(restless.user, True) == [restless]
        assert len(turns._alarms) <= 2 * 50 + 64
    assert len(turns.wake(1_000)) == 50
    assert turns.next_alarm_ns() is None


def test_a_user_shows_in_a_debugger_whether_it_sleeps() -> None:
    turns: Turns[str] = Turns()
    made = line(turns, "a", "12")
    made.queued = 3
    assert repr(made.user) == "User('a', 2 resident, 3 queued, awake)"
    turns.sleep(made.user, 100)
    assert repr(made.user) == "User('a', 2 resident, 3 queued, asleep until 100)"


def test_a_sleeper_is_not_dealt_to_and_wakes_at_its_instant_not_before() -> None:
    turns: Turns[str] = Turns()
    made = line(turns, "a", "1")
    turns.sleep(made.user, 100)
    assert turns.deal(3, everything)[0] == []
    assert (turns.asleep, turns.next_alarm_ns()) == (1, 100)
    assert turns.wake(99) == []
    assert turns.wake(100) == [made]
    assert [pick for _, pick in turns.deal(3, everything)[0]] == ["1"]
    assert (turns.asleep, turns.next_alarm_ns()) == (0, None)


def test_the_alarm_of_a_user_who_left_wakes_nobody() -> None:
    turns: Turns[str] = Turns()
    made = line(turns, "a", "1")
    turns.sleep(made.user, 100)
    assert turns.leave(made)
    back = line(turns, "a", "2")
    turns.sleep(back.user, 200)
    assert turns.next_alarm_ns() == 200
    assert turns.wake(150) == []


def test_nothing_is_left_of_users_who_left() -> None:
    turns: Turns[str] = Turns()
    first, second = line(turns, "a", "1"), line(turns, "a", "2", level=3)
    assert not turns.leave(first)
    assert turns.leave(second)
    assert (turns.users, turns.rings, turns.limited_awake, turns.asleep) == ({}, {}, {}, 0)


def test_a_line_that_joins_while_its_user_sleeps_waits_with_it() -> None:
    turns: Turns[str] = Turns()
    turns.sleep(line(turns, "a").user, 100)
    other = line(turns, "a", "1", level=2)
    assert turns.deal(3, everything)[0] == []
    assert other in turns.wake(100)
