"""The five semantics hold for a right engine, and each fault breaks the one that it belongs to."""

from __future__ import annotations

from fractions import Fraction

import pytest

from gpu_e2e.semantics import judge_all


def broken(world, mode="sync"):
    result = judge_all(world.record(), world.run, mode, same_tokens=True)
    assert [s.number for s in result] == [1, 2, 3, 4, 5]
    return {s.number: [v.rule for v in s.verdicts if not v.ok] for s in result if not s.ok}


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_right_engine_holds_all_five(world, mode):
    assert broken(world(mode), mode) == {}


@pytest.mark.parametrize(
    ("fault", "rules"),
    [
        ({"prompt_charged": "alice"}, {"ledger", "charges"}),
        ({"prompt_charged": "alice", "called_lost": True}, {"charges"}),
        ({"free_of_charge": "bob"}, {"ledger", "charges"}),
    ],
    ids=str,
)
def test_charges_that_are_not_the_output(world, fault, rules):
    assert set(broken(world(**fault))[1]) == rules


def test_a_record_whose_end_was_lost_is_not_taken_for_whole(world):
    lost = world()
    lost.events = [e for e in lost.events if (e["e"], e.get("req")) != ("finish", "bob-0")]
    assert broken(lost) == {1: ["charges"]}


@pytest.mark.parametrize("times", [2, 0.9])
def test_another_rate(world, times):
    found = broken(world(times=Fraction(times)))
    assert "rate" in found[2]
    assert ("bound" in found[2]) is (times > 1)


def test_an_answer_cut_short_or_changed(world):
    cut = world()
    cut.run.of("alice")[1].finish_reason = "abort"
    assert broken(cut) == {3: ["S3-WHOLE-3"]}
    other = world()
    other.run.of("bob")[0].token_ids[700] += 1
    assert broken(other) == {3: ["S3-SAME-3"]}
    refused = world()
    refused.run.of("carol")[2].error = "HTTP 503: busy"
    assert "S3-WHOLE-3" in broken(refused)[3]


@pytest.mark.parametrize("silent", ["alice", "bob"])
def test_a_user_reached_its_limit_and_was_never_throttled(world, silent):
    calm = world()
    calm.events = [e for e in calm.events if (e["e"], e.get("user")) != ("throttled", silent)]
    assert broken(calm) == {3: ["throttled"]}


def test_a_host_too_slow_for_a_limit_owes_no_pause_of_it(world):
    slow = world(times=Fraction(9, 10))
    slow.events = [e for e in slow.events if (e["e"], e.get("user")) != ("throttled", "bob")]
    assert 3 not in broken(slow)


def test_a_free_user_is_held_back(world):
    assert "undisturbed" in broken(world(free_user_held=True))[4]


@pytest.mark.parametrize(("ran", "claimed"), [("sync", "async"), ("async", "sync")])
def test_the_engine_did_not_run_as_it_was_told(world, ran, claimed):
    assert broken(world(ran), claimed) == {5: ["depth"]}


def test_without_the_plugin_nothing_holds(world):
    """The engine's record is then empty: the first line is all that there is."""
    bare = world()
    bare.events = bare.events[:1]
    assert set(broken(bare)) == {1, 2, 3, 4, 5}


def test_other_devices_are_not_held_to_the_same_tokens(world):
    other = world()
    other.run.of("bob")[0].token_ids[700] += 1
    result = judge_all(other.record(), other.run, "sync", same_tokens=False)
    assert all(s.ok for s in result)
