"""vLLM's own parser and a model's folder without weights, for tests of flags and configs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sched_adapter import plugin

DEFAULT = "--default-user-output-tokens-per-second"
USERS = "--user-output-tokens-per-second"
LIMITER = "--output-rate-limiter"
BURST = "--output-rate-burst-ms"
WINDOW = "--output-rate-window-ms"
RECORD = "--output-rate-record"
ON_FAULT = "--output-rate-on-fault"


def parser() -> Any:
    """The parser of `python -m vllm.entrypoints.openai.api_server`."""
    plugin.register()
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    return make_arg_parser(FlexibleArgumentParser(prog="api_server.py"))


def decoder_model(folder: Path) -> str:
    """A folder with the config of a tiny plain decoder; nothing that could be loaded."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 128,
        "vocab_size": 320,
        "max_position_embeddings": 512,
        "dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def audio_model(folder: Path) -> str:
    """The same for a decoder that also hears."""
    from transformers import Qwen2AudioConfig

    text = {
        "model_type": "qwen2",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "vocab_size": 320,
        "max_position_embeddings": 512,
    }
    audio = {
        "model_type": "qwen2_audio_encoder",
        "d_model": 32,
        "encoder_layers": 2,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 64,
    }
    config = Qwen2AudioConfig(text_config=text, audio_config=audio)
    config.architectures = ["Qwen2AudioForConditionalGeneration"]
    config.dtype = "bfloat16"
    config.save_pretrained(folder)
    return str(folder)
