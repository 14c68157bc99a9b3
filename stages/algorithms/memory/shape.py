"""Models that training holds in memory: their shapes, of how many numbers and bytes they are.

The shapes are of transformers of Llama's kind. The published ones are as their config.json tells
them, to plan for by name or size.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

FLOAT = 4
"""Bytes of float32, in which weights, gradients, moments, norms and log-probs are."""
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
    """The shape that a `config.json` of transformers describes; a ValueError for other families."""
    family = config.get("model_type")
    if family not in FAMILIES:
        raise ValueError(
            f"expected a model_type among {', '.join(FAMILIES)}, found {family!r}: memory can be "
            f"told of no other architecture. Give its widths instead (--model hidden=...)"
        )
    return of_widths(
        hidden=config["hidden_size"], layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"], kv_heads=config.get("num_key_value_heads"),
        head_dim=config.get("head_dim"), intermediate=config["intermediate_size"],
        vocab=config["vocab_size"], tied=config.get("tie_word_embeddings", False),
        biases=family == "qwen2" or bool(config.get("attention_bias", False)),
        qk_norm=family == "qwen3",
    )  # fmt: skip


def of_widths(
    *, hidden: int, layers: int, heads: int, intermediate: int, vocab: int,
    kv_heads: int | None = None, head_dim: int | None = None, tied: int = 1, biases: int = 0,
    qk_norm: int = 0,
) -> Shape:  # fmt: skip
    """Where nothing else is said, keys are as many as heads, and heads divide the width."""
    sizes = layers, heads, kv_heads or heads, head_dim or hidden // heads, intermediate, vocab
    return Shape(hidden, *sizes, bool(tied), bool(biases), bool(qk_norm))


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
    sizes = {name: parameters(shape, "language_model") for name, shape in PUBLISHED.items()}
    return min(sizes, key=lambda name: abs(math.log(sizes[name] / num_parameters)))


Method = Literal["sft", "dpo", "reward_model", "process_reward", "ppo", "grpo"]
"""`reward_model` is the method of outcome models too."""
Scorer = Literal["none", "reward_model", "process_model", "policy"]
"""What a reward asks: nothing of a model; reward or outcome models; a process model; a judge."""
HEADS: dict[Scorer, Head] = {
    "reward_model": "scalar", "process_model": "two_labels", "policy": "language_model",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Resident:
    """A model in memory."""

    role: Literal["policy", "reference", "value", "scorer", "reward"]
    head: Head
    trained: bool
    count: int = 1
    """Models of this kind: the members of an ensemble."""


def residents(
    method: Method, *, scorer: Scorer = "none", members: int = 1,
    value: Literal["own", "shared"] = "own",
) -> list[Resident]:  # fmt: skip
    """The models of a stage that trains.

    PPO (Ouyang et al. 2022, step 3): policy, reference, value and reward model. GRPO (Shao et al.
    2024, section 4.1) has no value model; its reference is loaded whatever the penalty, for the
    divergence is always measured. DPO has the policy alone: the reference's log-probs were stored
    by `compute_ref_logprobs`. With adapters policy and reference are still two models. `scorer` is
    what the reward of PPO or GRPO asks, an ensemble of `members`; `value` says whether PPO's value
    model has a body of its own.
    """
    if method in ("reward_model", "process_reward"):
        head: Head = "scalar" if method == "reward_model" else "two_labels"
        return [Resident(role="reward", head=head, trained=True)]
    found = [Resident(role="policy", head="language_model", trained=True)]
    if method in ("ppo", "grpo"):
        found.append(Resident(role="reference", head="language_model", trained=False))
    if method == "ppo":
        own: Head = "scalar" if value == "own" else "scalar_alone"
        found.append(Resident(role="value", head=own, trained=True))
    if scorer in HEADS:
        found.append(Resident(role="scorer", head=HEADS[scorer], trained=False, count=members))
    return found


def states(shape: Shape, model: Resident, rank: int) -> dict[str, int]:
    """`parameters`, those `trained`, and bytes of `weights`, `gradients` and `moments`.

    With adapters of `rank` a trained body is frozen, and trained are they and a new head. All
    numbers are float32 whatever `compute.dtype`: weights 4 bytes, gradients 4 and AdamW's two
    moments 8 for each that is trained (Kingma and Ba 2015; `stages/optim`), 16 in all; 4 for each
    that is not. Rajbhandari et al. 2020, "ZeRO", https://arxiv.org/abs/1910.02054, section 3.1,
    count 16 too, but with weights and gradients in 16 bits beside a copy in 32.
    """
    every = model.count * parameters(shape, model.head)
    trained = every if model.trained else 0
    if model.trained and rank > 0 and model.head != "scalar_alone":
        head = {"scalar": shape.hidden, "two_labels": 2 * shape.hidden + 2}.get(model.head, 0)
        trained = adapters(shape, rank) + head
        every += trained  # peft keeps the head that was there beside the one that it trains
    return {
        "parameters": every, "trained": trained, "weights": FLOAT * every,
        "gradients": FLOAT * trained, "moments": 2 * FLOAT * trained,
    }  # fmt: skip
