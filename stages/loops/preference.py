"""Training on preference pairs without sampling: DPO and its relatives."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor
from transformers import PreTrainedModel

from stages.loops import work
from stages.loops.checkpoints import Kept
from stages.loops.choices.pair_logprobs import PairLogprobs
from stages.loops.choices.preference_loss import PairLoss, PreferenceLoss
from stages.loops.pairs import pair_groups
from stages.loops.ref_logprobs import sequence_logprobs
from stages.loops.soft_labels import expected_loss
from stages.loops.step import Step
from stages.models.batch import Batch, micro_batches
from stages.models.device import ComputeConfig
from stages.optim import OptimConfig, adamw, update
from stages.params import Params
from stages.records.preferences import Preference


class PreferenceConfig(Kept):
    """How long and how fast preferences are learned, whatever the loss."""

    num_epochs: int = Field(gt=0)
    """Passes over the pairs (of KTO, over the single completions)."""
    batch_size: int = Field(gt=0)
    """Pairs (of KTO, single completions) in an optimizer step."""
    optim: OptimConfig


class PreferencePreset(Params):
    """A loss and its numbers; `token_budget` may stand beside them."""

    loss: PreferenceLoss
    token_budget: int | None = Field(gt=0)
    """Tokens to train on in place of `num_epochs`; the step that reaches it is the last."""

    @model_validator(mode="before")
    @classmethod
    def _one_mapping(cls, content: Any) -> Any:
        if not isinstance(content, dict) or "loss" in content:
            return content
        loss = {key: value for key, value in content.items() if key != "token_budget"}
        return {"loss": loss, "token_budget": content.get("token_budget")}


def train(
    model: PreTrainedModel,
    pairs: Sequence[Preference],
    ref_logprobs: Float[Tensor, "pair 2"],
    schedule: Sequence[Sequence[int]],
    loss: PairLoss,
    config: PreferenceConfig,
    compute: ComputeConfig,
    pad_id: int,
) -> Iterator[Step]:
    """One step for each list of pair numbers in `schedule`; `model` is changed in place.

    Loss: mean of `loss` over the step's pairs, as their labels lead one to expect it, each
    pair's completions in one micro-batch.
    Every loss is logged with the log-ratios against the reference, needed by it or not.
    """
    model.train()
    optimizer = adamw(model, config.optim)
    for index, chosen in enumerate(schedule):
        sums: dict[str, float] = {}
        num_tokens = num_positions = 0
        for batch in micro_batches(pair_groups(pairs, chosen), compute, pad_id, model.device):
            logprobs = pair_logprobs(model, batch, ref_logprobs)
            labels = [pairs[i // 2].probability for i in batch.indices[::2]]
            losses, margins = expected_loss(
                loss, logprobs, torch.tensor(labels, device=model.device)
            )
            (losses.sum() / len(chosen)).backward()
            for name, values in {
                "loss/preference": losses,
                "margin/mean": margins,
                "margin/accuracy": (margins > 0).float(),
                "log_ratios/chosen": logprobs.chosen - logprobs.chosen_ref,
                "log_ratios/rejected": logprobs.rejected - logprobs.rejected_ref,
                "logprobs/chosen": logprobs.chosen,
                "logprobs/rejected": logprobs.rejected,
            }.items():
                sums[name] = sums.get(name, 0.0) + values.detach().sum().item()
            num_tokens += int(batch.mask.sum())
            num_positions += batch.num_tokens
        metrics = {name: value / len(chosen) for name, value in sums.items()}
        metrics["tokens/trained"] = num_tokens
        metrics |= work.passed("policy", "trained", positions=num_positions, outputs=num_tokens)
        metrics.update(update(optimizer, config.optim, index, len(schedule)))
        yield Step(index=index, metrics=metrics)


def pair_logprobs(
    model: PreTrainedModel, batch: Batch, ref_logprobs: Float[Tensor, "pair 2"]
) -> PairLogprobs:
    """What the model says of a micro-batch of pairs, beside what the reference said."""
    policy = sequence_logprobs(model, batch).view(-1, 2)
    ref = ref_logprobs.view(-1)[batch.indices].to(policy.device).view(-1, 2)
    lengths = batch.mask.sum(1).view(-1, 2)
    return PairLogprobs(
        chosen=policy[:, 0],
        rejected=policy[:, 1],
        chosen_ref=ref[:, 0],
        rejected_ref=ref[:, 1],
        chosen_lengths=lengths[:, 0],
        rejected_lengths=lengths[:, 1],
    )
