"""GRPO's losses: what TRL's steps should have computed, by our functions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from parity import online, ours
from parity.online import Learnable, Online
from parity.reference import Computed
from tiny_checkpoints import load
from torch import Tensor
from transformers import PreTrainedModel

from stages.algorithms.aggregation import fixed_length_mean, sequence_mean, token_mean

Aggregate = Callable[[Tensor, Tensor], Tensor]


def train_grpo(folder: Path, **changes: Any) -> Online:
    from trl import GRPOConfig, GRPOTrainer

    return online.train(GRPOTrainer, GRPOConfig, folder, **changes)


def per_sequence(losses: Tensor, mask: Tensor) -> Tensor:
    return sequence_mean(losses, mask, num_sequences=len(mask))


def per_token(losses: Tensor, mask: Tensor) -> Tensor:
    return token_mean(losses, mask, num_tokens=int(mask.sum()))


def per_length(losses: Tensor, mask: Tensor) -> Tensor:
    return fixed_length_mean(losses, mask, num_sequences=len(mask), length=online.MAX_TOKENS)


class TokenLosses:
    """One of our surrogates with its numbers, and whether each call of it clipped anything."""

    def __init__(self, function: Callable[..., tuple[Tensor, Tensor]], **numbers: Any) -> None:
        self.function, self.numbers = function, numbers
        self.clipped: list[bool] = []

    def __call__(self, logprobs: Tensor, rows: Learnable) -> Tensor:
        values, active = self.function(
            logprobs,
            rows.old_logprobs,
            rows.advantages[:, None].expand_as(logprobs),
            rows.batch.mask,
            **self.numbers,
        )
        self.clipped.append(bool((active & rows.batch.mask).any()))
        return values


def our_steps(
    found: Online, losses: TokenLosses, aggregate: Aggregate, *, mean_of_means: bool = False
) -> list[Computed]:
    """The steps TRL took, by `aggregate(losses(log-probs, rows), mask)`.

    Over all micro-batches of a step together, or with `mean_of_means` over each by itself.
    """
    computed = []
    for step in found.steps:
        parts = [[batch] for batch in step.batches] if mean_of_means else [step.batches]
        learnables = [online.learnable(part, found.steps[0].weights) for part in parts]

        def loss(model: PreTrainedModel, learnables: list[Learnable] = learnables) -> Tensor:
            means = [
                aggregate(losses(rows.logprobs(model), rows), rows.batch.mask)
                for rows in learnables
            ]
            return torch.stack(means).mean()

        computed.append(ours.computed(load("llama"), step.weights, loss))
    return computed


def their_steps(found: Online) -> list[Computed]:
    return [step.computed for step in found.steps]
