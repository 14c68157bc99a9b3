"""The shape of a transformer of Llama's kind, how many numbers it is made of, and published ones.

The published shapes are as their config.json tells them, to plan for by name or size.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Head = Literal["language_model", "scalar", "two_labels", "scalar_alone"]
"""What a model ends in: the output matrix; one number (reward, value); right and wrong (process
model); `scalar_alone` is a value head on another model's body."""
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""`model_type` of the architectures whose blocks are these: Touvron et al. 2023 (Llama), with
biases on queries, keys and values (Qwen2) or norms of queries and keys (Qwen3)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Widths and counts; see `from_config` for transformers' names of them."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool
    """The output matrix is the input embedding."""
    biases: bool = False
    """On queries, keys and values."""
    qk_norm: bool = False
    """Queries and keys are normed head by head."""


def widths(shape: Shape) -> tuple[int, int]:
    """Numbers of a position's query, and of its key (its value has as many)."""
    return shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim


def linears(shape: Shape) -> list[tuple[int, int]]:
    """(in, out) of the seven matrices of a block: q, k, v, o, gate, up, down."""
    query, key = widths(shape)
    hidden, inner = shape.hidden, shape.intermediate
    return [
        (hidden, query), (hidden, key), (hidden, key), (query, hidden),
        (hidden, inner), (hidden, inner), (inner, hidden),
    ]  # fmt: skip


def body_matrices(shape: Shape) -> int:
    """Numbers in the matrices of all blocks."""
    return shape.layers * sum(rows * columns for rows, columns in linears(shape))


def parameters(shape: Shape, head: Head) -> int:
    """All numbers of a model: embedding, blocks, norms, and its head."""
    if head == "scalar_alone":
        return shape.hidden
    query, key = widths(shape)
    small = 2 * shape.hidden + shape.biases * (query + 2 * key) + shape.qk_norm * 2 * shape.head_dim
    body = shape.vocab * shape.hidden + body_matrices(shape) + shape.layers * small + shape.hidden
    heads: dict[Head, int] = {
        "language_model": 0 if shape.tied else shape.vocab * shape.hidden,
        "scalar": shape.hidden,
        "two_labels": 2 * shape.hidden + 2,
    }
    return body + heads[head]


def adapters(shape: Shape, rank: int) -> int:
    """Numbers of low-rank adapters on every matrix of every block: rank (in + out) each.

    Hu et al., "LoRA" (2021), https://arxiv.org/abs/2106.09685, section 4.1.
    """
    return shape.layers * sum(rank * (rows + columns) for rows, columns in linears(shape))


def from_config(config: Mapping[str, Any]) -> Shape:
    """The shape that a `config.json` of transformers describes.

    Raises:
        ValueError: another architecture.
    """
    family = config.get("model_type")
    if family not in FAMILIES:
        raise ValueError(
            f"expected a model_type among {', '.join(FAMILIES)}, found {family!r}: memory can be "
            f"told of no other architecture. Give its widths instead (--model hidden=...)"
        )
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    return Shape(
        hidden=hidden,
        layers=config["num_hidden_layers"],
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or hidden // heads,
        intermediate=config["intermediate_size"],
        vocab=config["vocab_size"],
        tied=config.get("tie_word_embeddings", False),
        biases=family == "qwen2" or bool(config.get("attention_bias", False)),
        qk_norm=family == "qwen3",
    )


# hidden, layers, heads, kv_heads, head_dim, intermediate, vocab
PUBLISHED = {
    "qwen2.5-0.5b": Shape(896, 24, 14, 2, 64, 4864, 151936, tied=True, biases=True),
    "qwen3-0.6b": Shape(1024, 28, 16, 8, 128, 3072, 151936, tied=True, qk_norm=True),
    "qwen2.5-1.5b": Shape(1536, 28, 12, 2, 128, 8960, 151936, tied=True, biases=True),
    "qwen2.5-3b": Shape(2048, 36, 16, 2, 128, 11008, 151936, tied=True, biases=True),
    "qwen2.5-7b": Shape(3584, 28, 28, 4, 128, 18944, 152064, tied=False, biases=True),
    "llama-3.1-8b": Shape(4096, 32, 32, 8, 128, 14336, 128256, tied=False),
    "llama-3.1-70b": Shape(8192, 80, 64, 8, 128, 28672, 128256, tied=False),
}


def nearest_published(num_parameters: float) -> str:
    """The name of the published language model whose size is nearest, as a ratio."""

    def ratio(name: str) -> float:
        size = parameters(PUBLISHED[name], "language_model")
        return max(size, num_parameters) / min(size, num_parameters)

    return min(PUBLISHED, key=ratio)
