"""What both sides are given: one model, one tokenizer, the same rows, sizes and rates.

BENCHMARK_MODEL names one of `MODELS`: its shape, with random weights, and the sizes of a step.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """Shape of a model, and how much of an optimizer step it can take."""

    shape: dict[str, Any]
    num_rows: int
    """Demonstrations or pairs in an optimizer step."""
    num_prompts: int
    """Of an online step."""
    length: int
    """Tokens of a completion that is sampled."""
    num_micro: int
    """Micro-batches of an online step of TRL, so that its logits fit into 24 GiB."""


MODELS = {
    "small": Model(
        shape={"vocab_size": 1000, "hidden_size": 128, "intermediate_size": 384,
               "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2},
        num_rows=64, num_prompts=64, length=32, num_micro=1,
    ),
    "smollm2": Model(
        shape={"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536,
               "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3},
        num_rows=8, num_prompts=16, length=40, num_micro=4,
    ),
}  # fmt: skip
"""0.92 million parameters, and SmolLM2-135M but for the bias of its attention."""
MODEL = MODELS[os.environ.get("BENCHMARK_MODEL", "small")]
VOCAB, PAD, EOS = MODEL.shape["vocab_size"], 0, 1
PROMPTS, SAMPLES, LENGTH = MODEL.num_prompts, 8, MODEL.length
"""Of an online step: prompts, completions of each, tokens of a completion."""
ROWS = MODEL.num_rows
"""Demonstrations or pairs in an optimizer step."""
PROMPT_TOKENS, COMPLETION_TOKENS = (24, 73), (8, 57)
"""Shortest, and one more than the longest: 48 and 32 in the mean."""
RATE = 1e-4


def build() -> Qwen2ForCausalLM:
    """A Qwen2 of that shape: grouped heads, tied embeddings, random weights."""
    torch.manual_seed(0)
    config = Qwen2Config(
        **MODEL.shape, max_position_embeddings=256, tie_word_embeddings=True, pad_token_id=PAD,
        eos_token_id=EOS, bos_token_id=None,
    )  # fmt: skip
    return Qwen2ForCausalLM._from_config(config, attn_implementation="sdpa")


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a word, so that the text that both sides read is the same token ids."""
    words = {"<pad>": PAD, "<eos>": EOS} | {f"w{i}": i for i in range(2, VOCAB)}
    inner = Tokenizer(models.WordLevel(vocab=words, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>")


def text(token_ids: Sequence[int]) -> str:
    """Words of these ids."""
    return " ".join(f"w{i}" for i in token_ids)


def prompts(number: int) -> list[list[int]]:
    """Prompts of differing lengths."""
    return _draw(number, PROMPT_TOKENS, 1)


def completions(number: int, seed: int) -> list[list[int]]:
    """Completions of differing lengths, each with its end."""
    return [[*ids, EOS] for ids in _draw(number, COMPLETION_TOKENS, seed)]


def _draw(number: int, lengths: tuple[int, int], seed: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(*lengths, (number,), generator=generator).tolist()
    return [torch.randint(2, VOCAB, (n,), generator=generator).tolist() for n in sizes]


def reward(completion_ids: Sequence[Sequence[int]], **rest: Any) -> list[float]:
    """Any function of the tokens that differs within a group, and costs nothing."""
    return [sum(i % 2 for i in ids) / len(ids) for ids in completion_ids]
