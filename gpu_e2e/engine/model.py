"""The project's own model: a seeded tiny Qwen3 with a byte-level tokenizer, made in code.

It needs no download. A prompt that ends in a countdown token (`counting_prompt`) ends by itself
after a known number of tokens, at any temperature and at any length, so that the end of sequence
is a real event; any other prompt goes on for ever. What it says depends on the whole context.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import shutil
import sys
import tempfile
from pathlib import Path

from gpu_e2e.engine import vocabulary, weights
from gpu_e2e.engine.vocabulary import counting_prompt

__all__ = ["SEED", "cached", "counting_prompt", "make"]

SEED = 20
MAX_POSITIONS = 32_768


def make(folder: Path, seed: int = SEED) -> None:
    """Write the model into `folder` (created). Needs torch and transformers; about 10 s."""
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=vocabulary.VOCAB_SIZE,
        hidden_size=weights.HIDDEN,
        intermediate_size=weights.INTERMEDIATE,
        num_hidden_layers=weights.LAYERS,
        num_attention_heads=weights.HEADS,
        num_key_value_heads=weights.KV_HEADS,
        head_dim=weights.HEAD_DIM,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=vocabulary.END_ID,
        pad_token_id=vocabulary.END_ID,
        dtype="bfloat16",
    )
    model = Qwen3ForCausalLM(config).to("cpu").bfloat16()
    model.load_state_dict(weights.state_dict(seed), strict=True)
    model.generation_config = GenerationConfig(
        eos_token_id=vocabulary.END_ID, pad_token_id=vocabulary.END_ID
    )
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    vocabulary.save_tokenizer(folder)


def cached(seed: int = SEED, cache: Path | None = None) -> Path:
    """The folder of the model, made on first use.

    The folder's name carries a hash of the code that makes it, so an edit makes a new one, and it
    appears whole or not at all, so an interrupted or concurrent first use leaves no half model.
    """
    folder = (cache or default_cache()) / f"tiny-qwen3-{seed}-{_fingerprint()}"
    if (folder / "config.json").exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix="draft-", dir=folder.parent))
    try:
        make(draft, seed)
        try:
            draft.chmod(0o755)  # mkdtemp made it private
            draft.rename(folder)
        except OSError:
            if not (folder / "config.json").exists():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def default_cache() -> Path:
    """`vllm-output-rate` under the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "vllm-output-rate"


def _fingerprint() -> str:
    sources = "".join(inspect.getsource(m) for m in (vocabulary, weights, sys.modules[__name__]))
    return hashlib.sha256(sources.encode()).hexdigest()[:12]


if __name__ == "__main__":
    print(cached())
