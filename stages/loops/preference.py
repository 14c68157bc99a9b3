"""Training on preference pairs without sampling: direct preference optimisation."""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from transformers import PreTrainedModel

from stages.algorithms.losses.dpo import dpo_loss
from stages.loops.pairs import pair_groups
from stages.loops.step import Step
from stages.models.batch import Batch, micro_batches
from stages.models.device import ComputeConfig
from stages.models.policy import completion_logprobs
from stages.optim import OptimConfig, adamw, update
from stages.params import Params
from stages.records.preference import Preference


class PreferencePreset(Params):
    """An algorithm of the DPO family."""

    beta: float = Field(gt=0)
    """Strength of the implied KL constraint to the reference; 0.01 to 0.5."""


class PreferenceConfig(Params):
    """Sizes of the preference loop, whichever algorithm it runs."""

    num_epochs: int = Field(gt=0)
    """Passes over the pairs."""
    batch_size: int = Field(gt=0)
    """Pairs in an optimizer step."""
    optim: OptimConfig


@torch.no_grad()
def reference_logprobs(
    model: PreTrainedModel, pairs: Sequence[Preference], compute: ComputeConfig, pad_id: int
) -> Float[Tensor, "pair 2"]:
    """Summed log-probs of every chosen and rejected completion, in eval mode, computed once.

    So the reference need not be in memory while training: it is the policy before its
    first step.
    """
    model.eval()
    sums = torch.zeros(2 * len(pairs))
    groups = pair_groups(pairs, range(len(pairs)))
    for batch in micro_batches(groups, compute, pad_id, model.device):
        sums[batch.indices] = sequence_logprobs(model, batch).cpu()
    return sums.view(-1, 2)


def sequence_logprobs(model: PreTrainedModel, batch: Batch) -> Float[Tensor, " batch"]:
    """log p of each whole completion."""
    logprobs, _ = completion_logprobs(model, batch, temperature=1.0)
    return logprobs.sum(1)


def train(
    model: PreTrainedModel,
    pairs: Sequence[Preference],
    ref_logprobs: Float[Tensor, "pair 2"],
    schedule: Sequence[Sequence[int]],
    config: PreferenceConfig,
    preset: PreferencePreset,
    compute: ComputeConfig,
    pad_id: int,
) -> Iterator[Step]:
    """One step for each list of pair numbers in `schedule`; `model` is changed in place.

    Loss: mean of the DPO loss over the step's pairs, each pair's completions in one
    micro-batch.
    """
    model.train()
    optimizer = adamw(model, config.optim)
    for index, chosen in enumerate(schedule):
        sums = {"loss/dpo": 0.0, "margin/mean": 0.0, "margin/accuracy": 0.0}
        logps = {"logprobs/chosen": 0.0, "logprobs/rejected": 0.0}
        num_tokens = 0
        for batch in micro_batches(pair_groups(pairs, chosen), compute, pad_id, model.device):
            policy = sequence_logprobs(model, batch).view(-1, 2)
            ref = ref_logprobs.view(-1)[batch.indices].to(policy.device).view(-1, 2)
            losses, margins = dpo_loss(
                policy[:, 0], policy[:, 1], ref[:, 0], ref[:, 1], beta=preset.beta
            )
            (losses.sum() / len(chosen)).backward()
            sums["loss/dpo"] += losses.sum().item()
            sums["margin/mean"] += margins.sum().item()
            sums["margin/accuracy"] += (margins > 0).sum().item()
            logps["logprobs/chosen"] += (policy - ref)[:, 0].sum().item()
            logps["logprobs/rejected"] += (policy - ref)[:, 1].sum().item()
            num_tokens += int(batch.mask.sum())
        metrics = {name: value / len(chosen) for name, value in {**sums, **logps}.items()}
        metrics["tokens/trained"] = num_tokens
        metrics.update(update(optimizer, config.optim, index, len(schedule)))
        yield Step(index=index, metrics=metrics)
