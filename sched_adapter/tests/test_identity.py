"""Who a request belongs to: what is a name, and what happens to what is none."""

from types import SimpleNamespace

import pytest

from sched_adapter import identity

GOOD = ["a", "user-a", "用户", "a b", "x" * 256, "__anonymous__", "é"]
BAD = [
    (None, "NoneType"),
    (1, "int"),
    (5.5, "float"),
    (float("nan"), "float"),
    (True, "bool"),
    ([], "list"),
    (["a", 1], "list"),
    ({}, "dict"),
    (b"a", "bytes"),
    ("", "empty"),
    ("x" * 257, "257 characters"),
    ("a\nb", "character 2"),
    ("\x00", "character 1"),
    ("ab\x7f", "character 3"),
    ("\u2028", "u2028"),
    ("\ud800", "ud800"),
    ("\u200b", "u200b"),
]


def request(extra_args: object) -> SimpleNamespace:
    return SimpleNamespace(sampling_params=SimpleNamespace(extra_args=extra_args))


@pytest.mark.parametrize("name", GOOD)
def test_a_name_is_taken_as_it_is(name: str) -> None:
    identity.check(name)
    assert identity.user_of(request({"output_rate_user": name})) == name


@pytest.mark.parametrize(("value", "fault"), BAD)
def test_what_is_no_name_is_refused_in_one_short_line(value: object, fault: str) -> None:
    with pytest.raises(ValueError, match=fault) as caught:
        identity.check(value)
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) < 200
    assert "1 to 256 printable characters" in text


@pytest.mark.parametrize(("value", "_fault"), BAD)
def test_what_got_past_the_front_end_counts_as_anonymous(value: object, _fault: str) -> None:
    assert identity.user_of(request({"output_rate_user": value})) == identity.ANONYMOUS


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("", "a user's name cannot be empty"),
        ("x" * 255 + "\n", "a user's name cannot hold '\\n' (character 256)"),
        ("x" * 256 + "\n", "a user's name cannot have 257 characters"),
    ],
)
def test_the_line_names_the_fault_and_the_mend(value: str, fault: str) -> None:
    with pytest.raises(ValueError, match="printable") as caught:
        identity.check(value)
    mend = "give a string of 1 to 256 printable characters, or leave the field out"
    assert str(caught.value) == f"{fault}: {mend}"


class StrangeStr(str):
    def __hash__(self) -> int:
        raise RuntimeError("no hash")


@pytest.mark.parametrize(
    "stranger",
    [
        SimpleNamespace(),
        SimpleNamespace(sampling_params=None),
        request(None),
        request({}),
        request([]),
        request({"user": "openai's own field"}),
        request({"output_rate_user": StrangeStr("a")}),
    ],
)
def test_a_request_without_a_name_is_anonymous(stranger: object) -> None:
    user = identity.user_of(stranger)
    assert user == identity.ANONYMOUS
    assert hash(user)
