"""The public surface, bad arguments, and a backend of somebody else."""

import copy
import inspect
import pickle
import subprocess
import sys

import pytest

import limiters
from limiters import Limiter, RollingWindow, make_limiter
from limiters.interface import DEFAULT_BURST_NS

MS = 10**6
NAMES = ["gcra", "token_bucket", "rolling_window"]
ALL = [(name, {}) for name in NAMES] + [(name, {"auto_burst": True}) for name in NAMES[:2]]


@pytest.fixture(params=ALL, ids=str)
def limiter(request):
    name, options = request.param
    made = make_limiter(name, default_rate=10, rates={"own": "1/3", "other": 33}, **options)
    for user in ("own", "other", "a"):
        assert made.try_take(user, 5)
    return made


def test_exports():
    assert sorted(limiters.__all__) == [
        "Gcra",
        "Limiter",
        "RollingWindow",
        "TokenBucket",
        "make_limiter",
        "parse_rate",
    ]  # fmt: skip
    for name in limiters.__all__:
        public = getattr(limiters, name)
        assert public.__doc__, name
        assert public.__module__.startswith("limiters"), name


def test_importing_brings_nothing_else_of_ours_and_no_engine():
    code = (
        "import limiters, sys; "
        "print(sorted(m.split('.')[0] for m in sys.modules if m.split('.')[0] in "
        "('vllm', 'torch', 'numpy', 'sched_adapter', 'conformance', 'gpu_e2e', 'pytest')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


BAD_USERS = [None, 5, b"a", True, ["a"], {}, ("a",), 1.5, ""]
BAD_INSTANTS = [None, 1.0, "5", True, float("nan")]


def everything(limiter):
    """The state as far as it can be told from outside, and inside."""
    seen = [len(limiter), limiter.default_rate, limiter.burst_ns]
    for user in ("own", "other", "a", "new"):
        for now in (5, 10**8, 10**9):
            seen += [limiter.rate_of(user), limiter.available(user, now)]
            seen += [limiter.ready_at_ns(user, now)]
    return seen, repr(limiter), pickle.dumps(limiter)


BAD_CALLS = [
    *[
        (verb, (user, *rest))
        for user in BAD_USERS
        for verb, rest in (
            ("try_take", (5,)),
            ("try_take_many", (1, 5)),
            ("refund", (5,)),
            ("available", (5,)),
            ("ready_at_ns", (5,)),
            ("rate_of", ()),
            ("set_rate", (1, 5)),
            ("unset_rate", (5,)),
        )
    ],
    *[
        (verb, (*rest, now))
        for now in BAD_INSTANTS
        for verb, rest in (
            ("try_take", ("new",)),
            ("try_take_many", ("own", 1)),
            ("refund", ("own",)),
            ("available", ("own",)),
            ("ready_at_ns", ("new",)),
            ("cleanup_idle_users", ()),
            ("set_rate", ("own", 1)),
            ("unset_rate", ("own",)),
            ("set_default_rate", (1,)),
            ("set_burst", (1,)),
        )
    ],
    *[
        (verb, (*rest, rate, 5))
        for rate in (0, -1, True, float("nan"), float("inf"), "1e400", "x", [])
        for verb, rest in (("set_rate", ("own",)), ("set_rate", ("new",)), ("set_default_rate", ()))
    ],
    ("set_rate", ("own", None, 5)),
    *[("set_burst", (burst, 5)) for burst in (-1, 0.5, None, "1", True)],
    *[("try_take_many", ("own", count, 5)) for count in (-1, 1.0, None, True)],
    *[("try_take_all", (["new", user], 5)) for user in BAD_USERS],
    *[("try_take_all", (["own", "new"], now)) for now in BAD_INSTANTS],
    *[("try_take_all", (users, 5)) for users in ("own", ("own", "new"), {"own"}, None)],
]


@pytest.mark.parametrize("verb", sorted({verb for verb, _args in BAD_CALLS}))
def test_a_bad_argument_changes_nothing(limiter, verb):
    before = everything(limiter)
    for args in [args for each, args in BAD_CALLS if each == verb]:
        with pytest.raises((TypeError, ValueError)) as refusal:
            getattr(limiter, verb)(*args)
        message = str(refusal.value)
        assert "must" in message, args
        assert ", got " in message, args
        assert "\n" not in message, args
        assert refusal.value.__cause__ is None
        assert refusal.value.__suppress_context__ or refusal.value.__context__ is None, args
        assert everything(limiter) == before, args


def test_a_denial_and_a_question_write_nothing(limiter):
    while limiter.try_take("a", 5):
        pass
    before = pickle.dumps(limiter)
    for user in ("a", "new"):
        limiter.available(user, 6)
        limiter.ready_at_ns(user, 6)
        limiter.rate_of(user)
    assert not limiter.try_take("a", 6)
    assert limiter.try_take_many("a", 5, 6) == 0
    assert limiter.try_take_many("new", 0, 6) == 0
    assert not limiter.try_take_all(["a"], 6)
    assert limiter.try_take_all([], 6)
    assert pickle.dumps(limiter) == before


@pytest.mark.parametrize("settings", [
    {"default_rate": 0}, {"default_rate": True}, {"default_rate": "1e400"},
    {"rates": {"a": 0}}, {"rates": {"": 1}}, {"rates": {5: 1}}, {"rates": {"a": None}},
    {"rates": [("a", 1)]}, {"rates": "a"},
    {"burst_ns": -1}, {"burst_ns": 1.0}, {"burst_ns": None}, {"burst_ns": False},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("name", NAMES)
def test_bad_settings(name, settings):
    with pytest.raises((TypeError, ValueError), match=r"^[^\n]* must [^\n]*, got [^\n]*$"):
        make_limiter(name, **{"default_rate": 10, **settings})


@pytest.mark.parametrize("window", [0, -1, 1.0, True, "1"])
def test_bad_windows(window):
    with pytest.raises((TypeError, ValueError), match=r"^window_ns must "):
        RollingWindow(default_rate=1, window_ns=window)


def test_the_rates_given_are_copied():
    given = {"a": 1}
    made = make_limiter("gcra", default_rate=None, rates=given)
    given["a"] = given["b"] = 5
    assert made.rate_of("a") == 1
    assert made.rate_of("b") is None


def test_defaults():
    assert DEFAULT_BURST_NS == 100 * MS
    assert make_limiter("gcra", default_rate=None).burst_ns == 100 * MS
    assert inspect.signature(make_limiter).parameters["burst_ns"].default == 100 * MS


def test_shows_what_it_is(limiter):
    assert repr(limiter) == (
        f"<{type(limiter).__name__} default 10/s, 2 own rates, burst 100000000 ns, "
        "3 users with state>"
    )
    assert "default unlimited, 0 own" in repr(make_limiter("gcra", default_rate=None))


def test_copies_and_pickles(limiter):
    for twin in (copy.deepcopy(limiter), pickle.loads(pickle.dumps(limiter))):
        assert everything(twin)[:2] == everything(limiter)[:2]
        assert twin.try_take("new", 5)
    assert len(limiter) == 3


class OnePerNs(Limiter):
    """Somebody else's backend: no more than the abstract verbs."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.last = {}

    def try_take(self, user, now_ns):
        if self.last.get(user, now_ns - 1) >= now_ns:
            return False
        self.last[user] = now_ns
        return True

    def refund(self, user, now_ns):
        self.last.pop(user, None)

    def available(self, user, now_ns):
        return int(self.last.get(user, now_ns - 1) < now_ns)

    def ready_at_ns(self, user, now_ns):
        return max(now_ns, self.last.get(user, now_ns - 1) + 1)

    def cleanup_idle_users(self, now_ns):
        gone = [user for user, last in self.last.items() if last < now_ns]
        for user in gone:
            del self.last[user]
        return len(gone)

    def __len__(self):
        return len(self.last)


def test_a_foreign_backend_inherits_the_rest():
    made = OnePerNs(default_rate=5, rates={"a": 2})
    assert made.try_take_many("a", 3, 0) == 1
    assert made.try_take_many("a", 0, 1) == 0
    made.end_step(0, 1)
    made.set_rate("a", 3, 1)
    made.set_default_rate(None, 1)
    made.set_burst(0, 1)
    assert (made.rate_of("a"), made.rate_of("b"), made.burst_ns) == (3, None, 0)
    assert "1 users with state" in repr(made)


def test_the_verbs_are_abstract():
    assert Limiter.__abstractmethods__ == {
        "try_take", "refund", "available", "ready_at_ns", "cleanup_idle_users", "__len__",
    }  # fmt: skip
