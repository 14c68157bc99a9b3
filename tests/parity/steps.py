"""Solutions with labelled steps, for TRL's process reward trainer and for our loss."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from parity.characters import text
from tiny_checkpoints import CPU, checkpoint, compute, random_ids
from transformers import AutoModelForTokenClassification, PreTrainedModel

from stages.models import policy

# Two tokens, of which the last is the one with the label.
SEPARATOR = [30, 31]
MICRO_BATCHES = 2
LONGEST = 14
# What `PRMConfig` is told beyond what every trainer is told.
CASES = {
    "whole": {"per_device_train_batch_size": 4},
    "micro_batches": {
        "per_device_train_batch_size": 4 // MICRO_BATCHES,
        "gradient_accumulation_steps": MICRO_BATCHES,
    },
    "truncated": {"per_device_train_batch_size": 4, "max_length": LONGEST},
    "without_labels": {"per_device_train_batch_size": 4, "max_length": 3},
}
# The tensors of a micro-batch of TRL's that are compared.
TENSORS = ("input_ids", "attention_mask", "labels")


@dataclass(frozen=True, kw_only=True, slots=True)
class Solution:
    prompt_ids: list[int]
    steps: list[list[int]]
    labels: list[int]

    def completion_ids(self) -> list[int]:
        return [token for step in self.steps for token in [*step, *SEPARATOR]]

    def ends(self) -> list[int]:
        """The place of each step's last token in the completion."""
        lengths = torch.tensor([len(step) + len(SEPARATOR) for step in self.steps])
        return (lengths.cumsum(0) - 1).tolist()

    def as_text(self) -> dict[str, object]:
        """A row of TRL's stepwise data sets."""
        return {
            "prompt": text(self.prompt_ids),
            "completions": [text(step) for step in self.steps],
            "labels": [bool(label) for label in self.labels],
        }


@functools.cache
def solutions() -> Sequence[Solution]:
    """Four, of 1 to 4 steps; both labels occur in one solution."""
    generator = torch.Generator().manual_seed(11)
    return [
        Solution(
            prompt_ids=random_ids(generator, 3 + i),
            steps=[random_ids(generator, 1 + (i + k) % 3) for k in range(1 + i)],
            labels=[int((i + k) % 3 > 0) for k in range(1 + i)],
        )
        for i in range(4)
    ]


def step_model() -> PreTrainedModel:
    """The tiny Llama under a head of two scores, all dropout off."""
    new = frozenset({"score.weight", "score.bias"})
    result = policy.load_pretrained(
        AutoModelForTokenClassification, checkpoint("llama"), new=new, num_labels=2
    )
    generator = torch.Generator().manual_seed(5)
    for name in sorted(new):
        parameter = result.get_parameter(name)
        parameter.data = 0.3 * torch.randn(parameter.shape, generator=generator)
    return policy.prepare_model(result, compute(), CPU)
