"""The ring, the sleepers and the alarms against a model that keeps plain lists."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from sched_adapter.turns import Line, Turns

LIMITED = {"a": True, "b": True, "free": False}
LEVELS = (0, 1)

Key = tuple[str, int]  # of a line: its user's name and its level


@dataclass
class Model:
    live: dict[Key, int] = field(default_factory=dict)  # in the order in which lines were made
    rings: dict[int, list[Key]] = field(default_factory=lambda: {level: [] for level in LEVELS})
    awake: list[str] = field(default_factory=list)  # limited users, by when they woke or came
    sleepers: set[tuple[int, str]] = field(default_factory=set)  # (ready, user)
    alarms: list[tuple[int, str]] = field(default_factory=list)  # as they were set; also obsolete
    limited: dict[str, bool] = field(default_factory=dict)

    def of(self, name: str) -> list[Key]:
        return [key for key in self.live if key[0] == name]

    def sleeps(self, name: str) -> bool:
        return any(sleeper == name for _, sleeper in self.sleepers)

    def join(self, key: Key) -> None:
        name, level = key
        if not self.of(name):
            self.limited[name] = LIMITED[name]
            if LIMITED[name]:
                self.awake.append(name)
        if key not in self.live and not self.sleeps(name):
            self.rings[level].append(key)
        self.live[key] = self.live.get(key, 0) + 1

    def leave(self, key: Key) -> bool:
        self.live[key] -= 1
        if self.live[key]:
            return False
        del self.live[key]
        self._out(key)
        if self.of(key[0]):
            return False
        self.awake = [name for name in self.awake if name != key[0]]
        self.sleepers = {sleeper for sleeper in self.sleepers if sleeper[1] != key[0]}
        self.alarms = [alarm for alarm in self.alarms if alarm[1] != key[0]]
        return True

    def sleep(self, name: str, ready_ns: int) -> None:
        self.sleepers.add((ready_ns, name))
        self.alarms.append((ready_ns, name))
        self.awake.remove(name)
        for key in self.of(name):
            self._out(key)

    def wake(self, now_ns: int) -> list[Key]:
        woken = []
        for alarm in sorted(self.alarms, key=lambda alarm: alarm[0]):
            if alarm[0] <= now_ns:
                self.alarms.remove(alarm)
                if alarm in self.sleepers:
                    woken += self._rouse(alarm)
        return woken

    def relimit(self, name: str, limited: bool) -> list[Key]:
        asleep = [sleeper for sleeper in self.sleepers if sleeper[1] == name]
        woken = self._rouse(asleep[0]) if asleep else []
        self.limited[name] = limited
        self.awake = [other for other in self.awake if other != name] + [name] * limited
        return woken

    def _rouse(self, sleeper: tuple[int, str]) -> list[Key]:
        self.sleepers.remove(sleeper)
        self.awake.append(sleeper[1])
        for key in self.of(sleeper[1]):
            self.rings[key[1]].append(key)
        return self.of(sleeper[1])

    def to_the_end(self, key: Key) -> None:
        if key in self.rings[key[1]]:
            self._out(key)
            self.rings[key[1]].append(key)

    def _out(self, key: Key) -> None:
        self.rings[key[1]] = [other for other in self.rings[key[1]] if other != key]


def agree(turns: Turns[str], lines: dict[Key, Line[str]], model: Model) -> None:
    made = {level: dict.fromkeys(lines[k] for k in ring) for level, ring in model.rings.items()}
    assert turns.rings == {level: ring for level, ring in made.items() if ring}
    for level, ring in turns.rings.items():  # == knows no order
        assert list(ring) == list(made[level])
    assert {name: list(user.lines.items()) for name, user in turns.users.items()} == {
        name: [(key[1], lines[key]) for key in model.of(name)] for name, _ in model.live
    }
    assert {key: lines[key].live for key in model.live} == model.live
    for name, user in turns.users.items():
        assert user.limited == model.limited[name]
        assert user.ready_ns == next((r for r, sleeper in model.sleepers if sleeper == name), None)
    assert turns.limited_awake == dict.fromkeys(turns.users[name] for name in model.awake)
    assert [user.name for user in turns.limited_awake] == model.awake
    assert turns.asleep == len(model.sleepers)
    assert turns.next_alarm_ns() == min((ready for ready, _ in model.sleepers), default=None)


KEYS = [(name, level) for name in LIMITED for level in LEVELS]
deeds = st.sampled_from(["join", "join", "leave", "end", "sleep", "sleep", "wake", "relimit"])


@settings(deadline=None)  # a loaded machine is no fault
@given(st.lists(st.tuples(deeds, st.integers(0, 23)), min_size=15, max_size=40))
def test_turns_do_as_the_model_does(script: list[tuple[str, int]]) -> None:
    """Each deed with one of those it can be done to; so nearly every deed does something."""
    turns: Turns[str] = Turns()
    model = Model()
    lines: dict[Key, Line[str]] = {}
    now_ns = 0
    for deed, number in script:
        if deed == "join":
            key = KEYS[number % len(KEYS)]
            line = turns.join(*key, LIMITED.__getitem__)
            assert line is lines[key] if key in model.live else line not in lines.values()
            lines[key] = line
            model.join(key)
        elif deed == "leave" and model.live:
            key = list(model.live)[number % len(model.live)]
            gone = turns.leave(lines[key])
            assert gone is model.leave(key)
            assert lines[key].user.ready_ns is None or not gone
        elif deed == "end" and lines:  # of a line that is gone, too: nothing happens
            key = list(lines)[number % len(lines)]
            turns.to_the_end(lines[key])
            if key in model.live:
                model.to_the_end(key)
        elif deed == "sleep" and model.awake:
            name, ready_ns = model.awake[number % len(model.awake)], now_ns + 1 + number % 4
            turns.sleep(turns.users[name], ready_ns)
            model.sleep(name, ready_ns)
        elif deed == "wake" or (deed == "relimit" and model.live):
            for line in lines.values():
                line.shut = True
            if deed == "wake":
                now_ns += 1 + number % 3
                woken, expected = turns.wake(now_ns), model.wake(now_ns)
            else:
                name, limited = list(model.live)[number // 2 % len(model.live)][0], number % 2 == 0
                woken = turns.relimit(turns.users[name], limited)
                expected = model.relimit(name, limited)
            assert woken == [lines[key] for key in expected]
            assert all(line.shut is False for line in woken)
        agree(turns, lines, model)
