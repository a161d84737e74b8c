"""A change of rate, default or burst takes effect at once, and gives nobody a gift or a fine."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from conformance.level1.definitions import definition
from conformance.level1.histories import Player, pauses
from conformance.level1.settings import MS, S
from conformance.level1.watch import Watch
from conformance.rules import rule

# Close enough for a user to use up a full quota of each, far enough to matter.
CHANGING = [Fraction(text) for text in ("10", "1", "3", "33", "15", "10/13", "97", "1000", "7/2")]
BURSTS = [0, 33 * MS, 100 * MS, 100 * MS + 1, 700 * MS]


@rule("S2-CHANGE-1")
def test_S2_CHANGE_1_changing_to_and_fro_gains_nothing(contract, trial, hypothesis_settings):
    change = st.one_of(
        st.tuples(st.just("set_rate"), st.just("a"), st.sampled_from(CHANGING)),
        st.tuples(st.just("unset_rate"), st.just("a")),
        st.tuples(st.just("set_default_rate"), st.sampled_from(CHANGING)),
        st.tuples(st.just("set_burst"), st.sampled_from(BURSTS)),
    )

    @hypothesis_settings
    @given(
        rate=st.sampled_from(CHANGING),
        burst=st.sampled_from(BURSTS),
        parts=st.lists(
            st.tuples(pauses, st.sampled_from([0, 1, 3, 200]), st.none() | change), max_size=14
        ),
    )
    def run(rate, burst, parts):
        watch = Watch(contract, trial, rate, {}, burst)
        for pause, wanted, move in parts:
            watch.pause(pause)
            watch.take("a", wanted)
            if move is not None:
                watch.change(move)
        watch.take("a", 200)
        watch.judge()

    run()


@rule("S2-CHANGE-1")
def test_S2_CHANGE_1_a_change_renews_no_quota(contract, trial):
    """Out of quota, then any change and back: as if nothing had been."""
    for rate, other in ((10, 1000), (1000, 10), (10, 11), (3, 33)):
        moves = {
            "set_rate": [("set_rate", "a", other), ("set_rate", "a", rate)],
            "set_rate, unset_rate": [("set_rate", "a", other), ("unset_rate", "a")],
            "set_default_rate": [("set_default_rate", other), ("set_default_rate", rate)],
            "set_burst": [("set_burst", 5 * S), ("set_burst", 100 * MS)],
        }
        for how, pair in moves.items():
            watch = Watch(contract, trial, Fraction(rate), {}, 100 * MS)
            for _round in range(30):
                watch.take("a", 1_000)
                for move in pair:
                    watch.change(move)
                watch.pause(1 * MS)
            watch.judge(how)


@rule("S2-ADAPT-1")
def test_S2_ADAPT_1_the_new_rate_holds_at_once(contract, trial):
    rates = [Fraction(text) for text in ("1", "1000", "10", "33", "1/10", "1/3600", "7919/13")]
    longest = 0
    for old in rates:
        for new in rates:
            for how in ("set_rate", "set_default_rate"):
                limiter = contract.limiter(old)
                limiter.try_take_many("a", 10_000, 0)
                if how == "set_rate":
                    limiter.set_rate("a", new, 0)
                else:
                    limiter.set_default_rate(new, 0)
                promised = contract.evenness_ns(new, 100 * MS)
                ready = limiter.ready_at_ns("a", 0)
                longest = max(longest, ready if new == 1 else 0)
                trial.check(
                    ready <= promised and limiter.try_take("a", ready),
                    user="a",
                    at=f"0 ns, out of quota, {how} from {old} to {new} tok/s",
                    seen=f"ready at {ready} ns",
                    promised=f"a take that passes at {promised} ns at the latest",
                )
    trial.figure(f"from any rate to 1 tok/s: at most {longest / MS:g} ms to the next token")


@rule("S2-ADAPT-1")
def test_S2_ADAPT_1_a_new_burst_holds_at_once(contract, trial):
    for rate in (Fraction(10), Fraction(33), Fraction(1, 10)):
        for old in BURSTS:
            for new in BURSTS:
                limiter = contract.limiter(rate, burst_ns=old)
                limiter.try_take_many("a", 10_000, 0)
                limiter.set_burst(new, 0)
                promised = contract.evenness_ns(rate, new)
                ready = limiter.ready_at_ns("a", 0)
                trial.check(
                    ready <= promised and limiter.try_take("a", ready),
                    user="a",
                    at=f"0 ns, out of quota, set_burst from {old} to {new} ns at {rate} tok/s",
                    seen=f"ready at {ready} ns",
                    promised=f"a take that passes at {promised} ns at the latest",
                )


EXAMPLES = {
    "debt is counted in tokens, not seconds": (
        1000,
        [("try_take_many", "a", 1_000), ("set_rate", "a", 1)],
    ),
    "debt is counted in tokens, not instants": (
        1,
        [("try_take_many", "a", 1_000), ("set_rate", "a", 1000)],
    ),
    "half a token is half a token": (
        10,
        [("try_take_many", "a", 99), ("pause", 50 * MS), ("set_rate", "a", 20)],
    ),
    "a raise gives a stranger no more than a full quota was": (10, [("set_default_rate", 1000)]),
    "a raise of one's own rate does not either": (10, [("set_rate", "a", 1000)]),
    "a raise for one who has half": (
        100,
        [("try_take_many", "a", 5), ("set_default_rate", 1000), ("pause", 3 * MS)],
    ),
    "a cut caps the level": (1000, [("set_default_rate", 10)]),
    "a cut, then the old rate again": (
        1000,
        [("set_rate", "a", 10), ("pause", 7 * MS), ("set_rate", "a", 1000)],
    ),
    "to and fro at one instant": (
        10,
        [("try_take", "a"), ("set_default_rate", 1000), ("set_default_rate", 10)],
    ),
    "to and fro with an awkward rate": (
        10,
        [("try_take", "a"), ("set_rate", "a", Fraction(10, 13)), ("set_rate", "a", 10)],
    ),
    "back to the default": (
        10,
        [("set_rate", "a", 100), ("pause", S), ("try_take", "a"), ("unset_rate", "a")],
    ),
    "a wider burst fills up, it is not given": (10, [("set_burst", S), ("pause", 250 * MS)]),
    "a wider burst pays no debt": (10, [("try_take_many", "a", 9), ("set_burst", S)]),
    "no burst at all": (10, [("set_burst", 0)]),
    "no burst at all, out of quota": (10, [("try_take_many", "a", 9), ("set_burst", 0)]),
    "unlimited, and limited again": (
        10,
        [("try_take_many", "a", 9), ("set_default_rate", None), ("set_default_rate", 10)],
    ),
    "a change of the default leaves own rates alone": (
        10,
        [("set_rate", "a", 20), ("try_take", "a"), ("set_default_rate", 1000)],
    ),
    "a change long after": (
        10,
        [("try_take_many", "a", 9), ("pause", 3600 * S), ("set_default_rate", 1000)],
    ),
    "two changes in a row": (
        33,
        [
            ("try_take_many", "a", 2),
            ("pause", 7_000_001),
            ("set_rate", "a", Fraction(10, 13)),
            ("pause", 13 * MS),
            ("set_rate", "a", 97),
        ],
    ),
}
"""The rate at first, and what happens; the burst is 100 ms."""


@rule("L-CHANGE-1", claimed=lambda contract: contract.decides_like is not None)
def test_L_CHANGE_1_worked_examples(contract, trial):
    for name, (rate, history) in EXAMPLES.items():
        one = Player(contract.limiter(rate))
        other = Player(definition(contract, rate, {}, 100 * MS))
        # Right after the change, then take by take as soon as each is due.
        future = [("pause", 0)]
        for _token in range(5):
            future += [("try_take", "a"), ("come back",), ("pause", 1 * MS)]
        for number, move in enumerate([*history, *future]):
            if move[0] == "come back":
                ready = other.limiter.ready_at_ns("a", other.now_ns)
                one.now_ns = other.now_ns = ready
                continue
            got, expected = one.play(move), other.play(move)
            for user in ("a", "stranger"):
                mine, its = one.answers([user])[0], other.answers([user])[0]
                if mine != its or (move[0].startswith("try_take") and got != expected):
                    trial.broken(
                        user=user,
                        at=f"example “{name}” at {rate} tok/s, move {number + 1} {move} at "
                        f"{one.now_ns} ns",
                        seen=f"answer {got}, then available {mine[0]}, ready in {mine[1]} ns",
                        promised=f"answer {expected}, then {its[0]}, in {its[1]} ns",
                    )
    trial.figure(f"{len(EXAMPLES)} worked changes")
