"""Low-rank adaptation: train small matrices beside the frozen weights, merged when saved.

Hu et al., "LoRA" (2021), https://arxiv.org/abs/2106.09685, by the peft library. A merged
checkpoint is an ordinary one, so that every stage and other tools read it.
"""

import copy
from typing import Protocol, runtime_checkable

import torch
from pydantic import Field
from transformers import PreTrainedModel

from stages.params import Params

# What architectures call the head of a reward model, that of GPT-2's token classifier last.
HEADS = ("score", "classifier")


@runtime_checkable
class Merge(Protocol):
    """Merges the adapters of a model and returns what is to be saved: an ordinary model."""

    def __call__(self, *, going_on: bool = False) -> PreTrainedModel:
        """The model; `going_on`: training is not over, so the one being trained stays as it is.

        Merging and taking apart again would round its weights, so with adapters a checkpoint is
        merged in a copy, which takes the room of one more model while it is written.
        """
        ...


class LoraConfig(Params):
    """Whether and how to train adapters."""

    rank: int = Field(ge=0)
    """Rank of the adapters on every linear layer; 0 trains all weights instead."""
    alpha: int = Field(gt=0)
    """The adapters' output is scaled by alpha / rank."""


def attach(model: PreTrainedModel, config: LoraConfig, seed: int) -> Merge:
    """Give `model`, in place, adapters to train; nothing is done at rank 0.

    A new head is trained whole. No dropout: old and new log-probs must come from
    one function.

    Returns:
        a function that merges the adapters and returns the model to be saved.
    """
    if config.rank == 0:
        return lambda *, going_on=False: model  # noqa: ARG005
    from peft import LoraConfig as PeftConfig
    from peft import get_peft_model

    torch.manual_seed(seed)
    wrapped = get_peft_model(
        model,
        PeftConfig(
            r=config.rank,
            lora_alpha=config.alpha,
            lora_dropout=0.0,
            target_modules="all-linear",
            modules_to_save=[name for name in HEADS if hasattr(model, name)] or None,
        ),
    )

    def merged(*, going_on: bool = False) -> PreTrainedModel:
        adapted = copy.deepcopy(wrapped) if going_on else wrapped
        return adapted.merge_and_unload()  # pyright: ignore[reportReturnType, reportCallIssue]

    return merged
