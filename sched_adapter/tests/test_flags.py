"""The flags in vLLM's own parser: what they make, and how a bad one ends."""

import argparse
import json
import pickle
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm", reason="the flags live in vLLM's parser")

from sched_adapter import flags, refusals
from sched_adapter.config import OutputRateConfig
from sched_adapter.tests.vllm_flags import (
    BURST,
    DEFAULT,
    LIMITER,
    ON_FAULT,
    RECORD,
    USERS,
    WINDOW,
    decoder_model,
    parser,
)


@pytest.fixture(scope="module")
def parse() -> Callable[..., argparse.Namespace]:
    shared = parser()
    return lambda *argv: shared.parse_args(["--model", "m", *argv])


@pytest.fixture
def last_line(parse: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Parse what must be refused; stderr's last line."""

    def refused(*argv: str) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            parse(*argv)
        assert caught.value.code == 2
        text = capsys.readouterr().err
        assert "Traceback" not in text
        return text.rstrip("\n").splitlines()[-1]

    return refused


def limits(args: argparse.Namespace) -> OutputRateConfig | None:
    found = args.additional_config.get(flags.KEY)
    assert found is None or isinstance(found, OutputRateConfig)
    return found


def test_without_a_flag_nothing_is_added(parse: Callable[..., Any]) -> None:
    args = parse()
    assert args.additional_config == {}
    assert flags.fold(args) is None


def test_every_flag_arrives(parse: Callable[..., Any], tmp_path: Path) -> None:
    record = str(tmp_path / "r.jsonl")
    given = [DEFAULT, "0.1", USERS, '{"a":100,"b":1e2}', LIMITER, "rolling_window"]
    args = parse(*given, BURST, "50", WINDOW, "1000", RECORD, record, ON_FAULT, "closed")
    assert limits(args) == OutputRateConfig(
        default_rate=Fraction(1, 10),
        rates={"a": Fraction(100), "b": Fraction(100)},
        limiter="rolling_window",
        burst_ns=50_000_000,
        window_ns=1_000_000_000,
        record_path=record,
        on_fault="closed",
    )
    assert limits(parse()) is None, "one command line must not leak into the next"


def test_users_alone_leave_everybody_else_unlimited(parse: Callable[..., Any]) -> None:
    found = limits(parse(USERS, '{"a":100}'))
    assert found is not None
    assert found.enabled
    assert found.make_limiter().rate_of("b") is None


def test_an_automatic_burst(parse: Callable[..., Any]) -> None:
    for limiter in ("gcra", "token_bucket"):
        found = limits(parse(DEFAULT, "5", BURST, "auto", LIMITER, limiter))
        assert found is not None
        assert found.options == {"auto_burst": True}


def test_underscores_equals_signs_and_dotted_users_are_vllms_own_ways(
    parse: Callable[..., Any],
) -> None:
    found = limits(
        parse("--default_user_output_tokens_per_second=20", f"{USERS}.alice", "0.1", f"{USERS}.b=7")
    )
    assert found == OutputRateConfig(Fraction(20), {"alice": Fraction(1, 10), "b": Fraction(7)})


def test_a_config_file_says_the_same(parse: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        "default-user-output-tokens-per-second: 0.1\n"
        "user-output-tokens-per-second: {user-a: 100, b: 0.3}\n"
        "output-rate-limiter: token_bucket\n"
        "output-rate-burst-ms: auto\n"
    )
    found = limits(parse("--config", str(file)))
    assert found == OutputRateConfig(
        default_rate=Fraction(1, 10),
        rates={"user-a": Fraction(100), "b": Fraction(3, 10)},
        limiter="token_bucket",
        options={"auto_burst": True},
    )
    overridden = limits(parse("--config", str(file), DEFAULT, "7"))
    assert overridden is not None
    assert overridden.default_rate == 7


def test_additional_config_on_the_command_line(parse: Callable[..., Any]) -> None:
    args = parse("--additional-config", '{"output_rate":{"default_rate":0.1},"other":1}')
    assert limits(args) == OutputRateConfig(Fraction(1, 10))
    assert args.additional_config["other"] == 1


def test_help_has_all_flags_under_one_heading(capsys: pytest.CaptureFixture[str]) -> None:
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    try:
        with pytest.raises(SystemExit) as caught:
            parser().parse_args([f"--help={flags.TITLE}"])
    finally:
        FlexibleArgumentParser._search_keyword = None
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(flags.TITLE)
    for flag in flags.FLAGS.values():
        assert f"  {flag} " in shown


BAD_VALUES = [
    *((DEFAULT, text, text) for text in ("0", "-5", "-0.5", "nan", "inf", "1e400", "abc", "1_0")),
    *((DEFAULT, text, text) for text in ("-1e5", "-inf", "-.5", '"5"', "true", "1e30000000")),
    (DEFAULT, "", "''"),
    (DEFAULT, "new\nline", "new\\nline"),
    (USERS, "5", "5"),
    (USERS, "[1]", "[1]"),
    (USERS, "{", "not JSON"),
    (USERS, "{\n", "not JSON"),
    (USERS, '{"a":1,"a":2}', "'a' is given twice"),
    (USERS, '{"a":"100"}', '"100"'),
    (USERS, '{"a":true}', "true"),
    (USERS, '{"a":NaN}', "NaN"),
    (USERS, '{"a":1e400}', "1e400"),
    (USERS, '{"a":0}', "'0'"),
    (USERS, '{"a":-1}', "-1"),
    (USERS, '{"":1}', "empty"),
    (LIMITER, "no_such_backend", "no_such_backend"),
    (LIMITER, "no_such_module:Class", "no_such_module"),
    (BURST, "-1", "-1"),
    (BURST, "1s", "1s"),
    (BURST, "nan", "nan"),
    (WINDOW, "0", "0"),
    (RECORD, "/no/such/folder/r", "/no/such/folder/r"),
    (ON_FAULT, "ajar", "ajar"),
    (ON_FAULT, "Open", "open or closed"),
]


@pytest.mark.parametrize(("flag", "value", "named"), BAD_VALUES)
def test_a_bad_value_ends_with_status_2_and_says_so_in_the_last_line(
    flag: str, value: str, named: str, last_line: Callable[..., str]
) -> None:
    text = last_line(flag, value)
    assert "error:" in text
    assert flag in text
    assert named in text


EXTRA = "--additional-config"


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        ([f"{USERS}.a.b", "100"], [USERS, "a name with a dot"]),
        ([f"{USERS}.a", "abc"], [USERS, "abc"]),
        ([f"{USERS}.a", "1e400"], [USERS, "Infinity"]),
        ([DEFAULT, "5", WINDOW, "1000"], [f"{WINDOW} 1000", "gcra", f"{LIMITER} rolling_window"]),
        ([DEFAULT, "5", BURST, "auto", LIMITER, "rolling_window"], [f"{BURST} auto", "gcra"]),
        ([DEFAULT, "5", EXTRA, '{"output_rate":{"default_rate":6}}'], [DEFAULT, "one place"]),
        ([EXTRA, '{"output_rate":{"default_rate":"5"}}'], ["output_rate", "default_rate", "'5'"]),
        ([EXTRA, '{"output_rate":5}'], ["output_rate", "5"]),
    ],
)
def test_rules_across_flags_end_the_same_way(
    argv: list[str], named: list[str], last_line: Callable[..., str]
) -> None:
    text = last_line(*argv)
    for part in named:
        assert part in text


def test_a_bad_value_in_a_config_file_ends_the_same_way(
    last_line: Callable[..., str], tmp_path: Path
) -> None:
    file = tmp_path / "c.yaml"
    for line, named in [
        ("default-user-output-tokens-per-second: .nan", "nan"),
        ("user-output-tokens-per-second: {a: '100'}", '"100"'),
        ("user-output-tokens-per-second: {a: true}", "true"),
        ("user-output-tokens-per-second: {a: .inf}", "Infinity"),
    ]:
        file.write_text(line + "\n")
        text = last_line("--config", str(file))
        assert line.split(":")[0] in text
        assert named in text


REFUSED = [
    ("--speculative-config", '{"method":"ngram","num_speculative_tokens":2}', "several tokens"),
    ("--spec-method", "ngram", "several tokens"),
    ("--data-parallel-size", "2", "limiter of its own"),
    ("--pipeline-parallel-size", "2", "not proven"),
    ("--runner", "pooling", "generates no tokens"),
    ("--convert", "embed", "generates no tokens"),
    ("--kv-transfer-config", '{"kv_connector":"X","kv_role":"kv_both"}', "KV blocks"),
    ("--kv-offloading-size", "1", "KV blocks"),
    ("--ec-transfer-config", '{"ec_connector":"X","ec_role":"ec_producer"}', "is ready"),
    ("--enable-return-routed-experts", None, "not proven"),
    ("--enable-elastic-ep", None, "ranks at run time"),
    ("--scheduler-cls", "vllm.v1.core.sched.scheduler.Scheduler", "scheduler of their own"),
    ("--max-num-queued-reqs", "100", "turn everybody else away"),
    ("--max-num-queued-tokens", "100", "turn everybody else away"),
]


@pytest.mark.parametrize(("flag", "value", "reason"), REFUSED)
def test_flags_that_do_not_go_with_limits_are_refused_with_the_reason(
    flag: str,
    value: str | None,
    reason: str,
    last_line: Callable[..., str],
    parse: Callable[..., Any],
) -> None:
    argv = [flag] if value is None else [flag, value]
    text = last_line(DEFAULT, "20", *argv)
    assert flag in text
    assert reason in text
    assert "without limits" in text
    parse(*argv)  # and are none of our business without them
    parse(LIMITER, "token_bucket", *argv)


def test_the_rust_front_end_is_refused(
    last_line: Callable[..., str], parse: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_USE_RUST_FRONTEND", "1")
    text = last_line(DEFAULT, "20")
    assert "VLLM_USE_RUST_FRONTEND" in text
    assert "bypasses the Python checks" in text
    parse()
    monkeypatch.setenv("VLLM_USE_RUST_FRONTEND", "0")
    parse(DEFAULT, "20")


def test_every_setting_that_a_rule_looks_at_is_one_of_vllms() -> None:
    """A typing error in a rule, or a flag that vLLM renamed, would refuse nothing."""
    import dataclasses

    from vllm.engine.arg_utils import EngineArgs

    known = {field.name for field in dataclasses.fields(EngineArgs)}
    looked_at: set[str] = set()

    class Settings:
        def __getattr__(self, name: str) -> None:
            looked_at.add(name)

    assert refusals.of_settings(Settings()) is None
    assert len(looked_at) > 12
    assert looked_at <= known


def test_an_api_servers_process_gets_the_limits_with_its_arguments(
    parse: Callable[..., Any], tmp_path: Path
) -> None:
    """It calls vLLM's own `from_cli_args` first, before any plugin is loaded there."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    model = decoder_model(tmp_path / "m")
    args = pickle.loads(pickle.dumps(parse("--model", model, DEFAULT, "20")))
    stock = AsyncEngineArgs.from_cli_args.__func__.__wrapped__
    engine_args = stock(AsyncEngineArgs, args)
    assert engine_args.additional_config[flags.KEY] == OutputRateConfig(Fraction(20))


def test_a_parser_that_does_not_use_parse_args_is_served_too(tmp_path: Path) -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs

    argv = ["--model", decoder_model(tmp_path / "m"), DEFAULT, "20"]
    args, _ = parser().parse_known_args(argv)
    engine_args = AsyncEngineArgs.from_cli_args(args)
    assert engine_args.additional_config[flags.KEY] == OutputRateConfig(Fraction(20))
    with pytest.raises(ValueError, match=WINDOW):
        AsyncEngineArgs.from_cli_args(parser().parse_known_args([*argv, WINDOW, "5"])[0])


def test_the_same_limits_folded_twice_are_folded_once(parse: Callable[..., Any]) -> None:
    args = parse(DEFAULT, "20", "--additional-config", json.dumps({"other": 1}))
    before = dict(args.additional_config)
    flags.fold(args)
    assert args.additional_config == before
