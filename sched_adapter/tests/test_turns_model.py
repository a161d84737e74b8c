"""The ring, the sleepers and the alarms against a model that keeps plain lists."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from sched_adapter.turns import Line, Turns

LIMITED = {"a": True, "b": True, "c": True, "free": False}
LEVELS = (0, 1)

Key = tuple[str, int]  # of a line: its user's name and its level


@dataclass
class Model:
    live: dict[Key, int] = field(default_factory=dict)  # in the order in which lines were made
    rings: dict[int, list[Key]] = field(default_factory=lambda: {level: [] for level in LEVELS})
    awake: list[str] = field(default_factory=list)  # limited users, by when they woke or came
    sleepers: list[tuple[int, str]] = field(default_factory=list)  # (ready, user), by bedtime

    def of(self, name: str) -> list[Key]:
        return [key for key in self.live if key[0] == name]

    def sleeps(self, name: str) -> bool:
        return any(sleeper == name for _, sleeper in self.sleepers)

    def join(self, key: Key) -> None:
        name, level = key
        if LIMITED[name] and not self.of(name):
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
        self.sleepers = [sleeper for sleeper in self.sleepers if sleeper[1] != key[0]]
        return True

    def sleep(self, name: str, ready_ns: int) -> None:
        self.sleepers.append((ready_ns, name))
        self.awake.remove(name)
        for key in self.of(name):
            self._out(key)

    def wake(self, now_ns: int) -> list[Key]:
        woken = []
        for ready_ns, name in sorted(self.sleepers, key=lambda sleeper: sleeper[0]):
            if ready_ns <= now_ns:
                self.sleepers.remove((ready_ns, name))
                self.awake.append(name)
                woken += self.of(name)
        for key in woken:
            self.rings[key[1]].append(key)
        return woken

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
        assert user.limited == LIMITED[name]
        assert user.ready_ns == next((r for r, sleeper in model.sleepers if sleeper == name), None)
    assert turns.limited_awake == dict.fromkeys(turns.users[name] for name in model.awake)
    assert [user.name for user in turns.limited_awake] == model.awake
    assert turns.asleep == len(model.sleepers)
    assert turns.next_alarm_ns() == min((ready for ready, _ in model.sleepers), default=None)


names, ticks = st.sampled_from(sorted(LIMITED)), st.integers(1, 3)
deeds = st.one_of(
    st.tuples(st.sampled_from(["join", "leave", "end"]), st.tuples(names, st.sampled_from(LEVELS))),
    st.tuples(st.just("sleep"), st.tuples(names, ticks)),
    st.tuples(st.just("wake"), st.tuples(st.just(""), ticks)),
)


@settings(deadline=None)  # a loaded machine is no fault
@given(st.lists(deeds, max_size=40))
def test_turns_do_as_the_model_does(script: list[tuple[str, Key]]) -> None:
    turns: Turns[str] = Turns()
    model = Model()
    lines: dict[Key, Line[str]] = {}
    now_ns = 0
    for deed, key in script:
        name, number = key
        if deed == "join":
            line = turns.join(name, number, LIMITED.__getitem__)
            assert line is lines.get(key, line) or key not in model.live
            lines[key] = line
            model.join(key)
        elif deed == "leave" and key in model.live:
            user = lines[key].user
            gone = turns.leave(lines[key])
            assert gone == model.leave(key)
            assert user.ready_ns is None or not gone
        elif deed == "end" and key in lines:  # of one that left, too: nothing happens
            turns.to_the_end(lines[key])
            model.to_the_end(key)
        elif deed == "sleep" and name in model.awake:
            turns.sleep(turns.users[name], now_ns + number)
            model.sleep(name, now_ns + number)
        elif deed == "wake":
            now_ns += number
            for line in lines.values():
                line.shut = True
            woken = turns.wake(now_ns)
            assert woken == [lines[key] for key in model.wake(now_ns)]
            assert not any(line.shut for line in woken)
        agree(turns, lines, model)
