"""Bad input is a clear error, and nothing else."""

from fractions import Fraction

from conformance.level1.histories import Player
from conformance.rules import rule

BAD_USERS = ["", None, 1, True, b"a", ["a"], {"a": 1}, 1.5]
BAD_INSTANTS = [1.0, None, True, "1", Fraction(1), float("nan")]
BAD_BURSTS = [-1, -(10**12), 1.5, None, True, "100", float("inf")]
BAD_RATES = [
    0,
    -1,
    0.0,
    -0.5,
    float("nan"),
    float("inf"),
    float("-inf"),
    True,
    False,
    Fraction(0),
    Fraction(-1, 3),
    "",
    "0",
    "-1",
    "abc",
    "nan",
    "inf",
    "Infinity",
    "1e400",
    " 1",
    "1 ",
    "1_000",
    "+1",
    "1/0",
    "1,5",
    "٣",
    b"1",
    [],
    [10],
    1j,
    object(),
]

NOW = 1_000
FAST = {"try_take", "ready_at_ns"}
"""Asked for every request in every step: they need not check the type of every instant."""


def calls(limiter):
    """(name, call) of every way to say something that makes no sense."""
    for user in BAD_USERS:
        for verb in ("try_take", "refund", "available", "ready_at_ns", "unset_rate"):
            yield f"{verb}({user!r}, {NOW})", lambda v=verb, u=user: getattr(limiter, v)(u, NOW)
        yield f"rate_of({user!r})", lambda u=user: limiter.rate_of(u)
        yield f"set_rate({user!r}, 1, {NOW})", lambda u=user: limiter.set_rate(u, 1, NOW)
        yield f"try_take_many({user!r}, 1)", lambda u=user: limiter.try_take_many(u, 1, NOW)
    for at in BAD_INSTANTS:
        for user in ("known", "own", "stranger"):
            for verb in ("try_take", "refund", "available", "ready_at_ns", "unset_rate"):
                if verb not in FAST or at is None or isinstance(at, str):
                    yield f"{verb}({user}, {at!r})", _call(limiter, verb, user, at)
        yield f"cleanup_idle_users({at!r})", lambda t=at: limiter.cleanup_idle_users(t)
        yield f"set_rate(known, 1, {at!r})", lambda t=at: limiter.set_rate("known", 1, t)
        yield f"set_default_rate(1, {at!r})", lambda t=at: limiter.set_default_rate(1, t)
        yield f"set_burst(1, {at!r})", lambda t=at: limiter.set_burst(1, t)
    for rate in BAD_RATES:
        yield f"set_rate(known, {rate!r})", lambda r=rate: limiter.set_rate("known", r, NOW)
        yield f"set_default_rate({rate!r})", lambda r=rate: limiter.set_default_rate(r, NOW)
    yield "set_rate(known, None)", lambda: limiter.set_rate("known", None, NOW)
    for burst in BAD_BURSTS:
        yield f"set_burst({burst!r})", lambda b=burst: limiter.set_burst(b, NOW)
    for count in (-1, 1.0, None, True, "1"):
        yield (
            f"try_take_many(known, {count!r})",
            lambda c=count: limiter.try_take_many("known", c, NOW),
        )


def _call(limiter, verb, *arguments):
    return lambda: getattr(limiter, verb)(*arguments)


def makings(contract):
    """(name, call) of every limiter that must not be."""
    for rate in BAD_RATES:
        yield f"default_rate={rate!r}", lambda r=rate: contract.limiter(r)
        yield f"rates={{'a': {rate!r}}}", lambda r=rate: contract.limiter(1, rates={"a": r})
    yield "rates={'a': None}", lambda: contract.limiter(1, rates={"a": None})
    for user in ("", None, 1, b"a"):
        yield f"rates={{{user!r}: 1}}", lambda u=user: contract.limiter(1, rates={u: 1})
    for burst in BAD_BURSTS:
        yield f"burst_ns={burst!r}", lambda b=burst: contract.limiter(1, burst_ns=b)


def refused(trial, name, call):
    try:
        answer = call()
    except (TypeError, ValueError) as error:
        text = str(error)
        if not text.strip() or "\n" in text:
            trial.broken(
                at=name, seen=f"{type(error).__name__}({text!r})", promised="a message of one line"
            )
    except Exception as error:
        trial.broken(at=name, seen=type(error).__name__, promised="TypeError or ValueError")
    else:
        trial.broken(at=name, seen=f"answer {answer!r}", promised="TypeError or ValueError")


@rule("L-INPUT-1")
def test_L_INPUT_1_nonsense_is_refused_and_leaves_no_trace(contract, trial):
    one, twin = (
        Player(contract.limiter(10, rates={"own": Fraction(10, 13)}), NOW) for _player in range(2)
    )
    for each in (one, twin):
        each.play(("try_take", "known"))
        each.play(("try_take", "own"))
    whose = ("known", "own", "stranger")
    count = 0
    for name, call in calls(one.limiter):
        refused(trial, name, call)
        count += 1
        mine, its = one.answers(whose), twin.answers(whose)
        state = [(len(p.limiter), *(p.limiter.rate_of(u) for u in whose)) for p in (one, twin)]
        if mine != its or state[0] != state[1]:
            trial.broken(
                user=", ".join(whose),
                at=f"after {name}",
                seen=f"answers {mine}, state {state[0]}",
                promised=f"{its}, {state[1]}, as before it",
            )
    for user in whose:
        one.play(("pause", 50_000_000)), twin.play(("pause", 50_000_000))
        if one.answers(whose) != twin.answers(whose):
            trial.broken(
                user=user, at="later", seen=one.answers(whose), promised=twin.answers(whose)
            )
    trial.figure(f"{count} bad calls refused")


@rule("L-INPUT-1")
def test_L_INPUT_1_no_limiter_of_nonsense(contract, trial):
    for name, call in makings(contract):
        refused(trial, name, call)
