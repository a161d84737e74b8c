"""The tiny model's tokens: the 256 bytes, four markers, and countdown tokens such as " 40c".

A countdown token is one token of text: a space, a number and one of eight letters.
The number says how many tokens follow before the end (see `weights`); the letter carries content.
"""

from __future__ import annotations

from pathlib import Path

END = "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
LETTERS = "abcdefgh"
BYTES = 256
# Numbers 0 .. 253. With "text" and "end" that makes 256 kinds of token: two base-16 digits.
NUMBERS = 254

END_ID = BYTES
FIRST_ROLE_ID = END_ID + 1
FIRST_COUNTDOWN_ID = FIRST_ROLE_ID + len(ROLES)
TOKENS = FIRST_COUNTDOWN_ID + NUMBERS * len(LETTERS)
# Rounded up as vLLM pads its output layer, so that no row is left to chance.
VOCAB_SIZE = -(-TOKENS // 64) * 64

# The role comes before its text and nothing comes after the last text, so that a countdown token
# at the end of a chat message is the last token of the prompt.
CHAT_TEMPLATE = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}"


def countdown_id(number: int, letter: str) -> int:
    """The token id of the countdown token of `number` and `letter`."""
    if not 0 <= number < NUMBERS:
        raise ValueError(f"countdown number {number} is outside 0..{NUMBERS - 1}")
    return FIRST_COUNTDOWN_ID + number * len(LETTERS) + LETTERS.index(letter)


def number_of(token_id: int) -> int | None:
    """The number of a countdown token, None for any other token id."""
    if not FIRST_COUNTDOWN_ID <= token_id < TOKENS:
        return None
    return (token_id - FIRST_COUNTDOWN_ID) // len(LETTERS)


def counting_prompt(text: str, tokens: int, letter: str = "a") -> str:
    """A prompt whose completion has exactly `tokens` tokens, the last one the end of sequence.

    `tokens` is what `usage.completion_tokens` says; 1 means that the first token is the end.
    Raises ValueError outside 1..254, since one token has to carry the number.
    """
    if not 1 <= tokens <= NUMBERS:
        raise ValueError(f"a completion of {tokens} tokens is outside 1..{NUMBERS}")
    countdown_id(tokens - 1, letter)
    return f"{text} {tokens - 1}{letter}"


def save_tokenizer(folder: Path) -> None:
    """Write the byte-level tokenizer with its chat template into `folder`."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    # The ids of the byte tokens are the byte values: the alphabet maps each byte to one character.
    alphabet = {_byte_character(value): value for value in range(BYTES)}
    tokenizer = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in (END, *ROLES)])
    tokenizer.add_tokens(
        [
            AddedToken(f" {number}{letter}", normalized=False, special=False)
            for number in range(NUMBERS)
            for letter in LETTERS
        ]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=END,
        additional_special_tokens=list(ROLES),
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(folder)


def _byte_character(value: int) -> str:
    """The character that byte-level tokenizers write for a byte: itself if it can be seen.

    The others follow from U+0100 on, in order, as in every GPT-2 style vocabulary.
    """
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    if value in seen:
        return chr(value)
    return chr(0x100 + [b for b in range(BYTES) if b not in seen].index(value))
