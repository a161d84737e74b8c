"""The tiny model's weights: random where it may be, exact where an end must come at a known place.

Hidden dimension 0 is the constant 1; the next 32 hold the *kind* of the next token as two one-hot
base-16 digits; attention and MLP never write to these 33. The rest is random: it is mixed by
attention over the whole context, so a wrong KV cache shows as other tokens.

Each token's embedding names the kind that follows it: text follows text for ever, the number
c - 1 follows the number c, the end follows 0. Each row of the output layer adds, for its own kind,
`MARGIN * (digits that match - 2)`: exactly 0 for the kind that is due, at least one `MARGIN` below
for any other. Inside the kind, the random part chooses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_e2e.engine import vocabulary as v

if TYPE_CHECKING:
    import torch

HIDDEN = 64
LAYERS = 2
HEADS = 2
KV_HEADS = 1
HEAD_DIM = 64
INTERMEDIATE = 128
DIGIT = 16
KIND = 1 + 2 * DIGIT  # dimensions 0 .. 32
MARGIN = 64.0  # a power of two: the due kind's sum is then exactly 0 in bfloat16
KIND_TEXT = v.NUMBERS
KIND_END = v.NUMBERS + 1
NEVER = -4.0 * MARGIN  # for rows that no greedy run may pick: markers, bytes that cannot be printed

_PRINTABLE = range(0x20, 0x7F)


def state_dict(seed: int) -> dict[str, torch.Tensor]:
    """Every weight of the model, under the names that transformers' Qwen3 gives them."""
    import torch

    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int, std: float) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * std

    free = HIDDEN - KIND
    embed = torch.zeros(v.VOCAB_SIZE, HIDDEN)
    embed[:, KIND:] = random(v.VOCAB_SIZE, free, std=1.0)
    head = torch.zeros(v.VOCAB_SIZE, HIDDEN)
    for token in range(v.VOCAB_SIZE):
        embed[token, 0] = 1.0
        embed[token, _digits(_next_kind(token))] = 1.0
        kind = _own_kind(token)
        if kind is None:
            head[token, 0] = NEVER
            continue
        head[token, 0] = -2.0 * MARGIN
        head[token, _digits(kind)] = MARGIN
        head[token, KIND:] = random(free, std=0.5)

    weights = {"model.embed_tokens.weight": embed, "lm_head.weight": head}
    weights["model.norm.weight"] = torch.ones(HIDDEN)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        weights[at + "input_layernorm.weight"] = torch.ones(HIDDEN)
        weights[at + "post_attention_layernorm.weight"] = torch.ones(HIDDEN)
        weights[at + "self_attn.q_norm.weight"] = torch.ones(HEAD_DIM)
        weights[at + "self_attn.k_norm.weight"] = torch.ones(HEAD_DIM)
        weights[at + "self_attn.q_proj.weight"] = random(HEADS * HEAD_DIM, HIDDEN, std=0.2)
        weights[at + "self_attn.k_proj.weight"] = random(KV_HEADS * HEAD_DIM, HIDDEN, std=0.2)
        weights[at + "self_attn.v_proj.weight"] = random(KV_HEADS * HEAD_DIM, HIDDEN, std=0.2)
        weights[at + "mlp.gate_proj.weight"] = random(INTERMEDIATE, HIDDEN, std=0.2)
        weights[at + "mlp.up_proj.weight"] = random(INTERMEDIATE, HIDDEN, std=0.2)
        for name, columns in (
            ("self_attn.o_proj", HEADS * HEAD_DIM),
            ("mlp.down_proj", INTERMEDIATE),
        ):
            out = random(HIDDEN, columns, std=0.1)
            out[:KIND] = 0.0  # the kind is not theirs to change
            weights[at + name + ".weight"] = out
    return {name: tensor.to(torch.bfloat16) for name, tensor in weights.items()}


def _next_kind(token: int) -> int:
    number = v.number_of(token)
    if number is not None:
        return number - 1 if number > 0 else KIND_END
    return KIND_END if token == v.END_ID else KIND_TEXT


def _own_kind(token: int) -> int | None:
    number = v.number_of(token)
    if number is not None:
        return number
    if token == v.END_ID:
        return KIND_END
    return KIND_TEXT if token in _PRINTABLE else None


def _digits(kind: int) -> list[int]:
    high, low = divmod(kind, DIGIT)
    return [1 + high, 1 + DIGIT + low]
