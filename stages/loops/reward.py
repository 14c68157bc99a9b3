"""Training a reward model on preference pairs."""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from transformers import PreTrainedModel

from stages.algorithms.losses.reward_and_value_losses import bradley_terry_loss
from stages.loops import work
from stages.loops.preference import pair_groups
from stages.loops.step import Step
from stages.models.batch import micro_batches
from stages.models.device import ComputeConfig
from stages.models.scalar_head import rewards
from stages.optim import OptimConfig, adamw, update
from stages.params import Params
from stages.records.preferences import Preference


class RewardConfig(Params):
    """The reward model's loop."""

    num_epochs: int = Field(gt=0)
    """Passes over the pairs; more than a few overfit."""
    batch_size: int = Field(gt=0)
    """Pairs in an optimizer step."""
    centring: float = Field(ge=0)
    """Weight of (r_chosen + r_rejected)^2, which keeps the scale's zero in place; usually 0.01."""
    margin: float = Field(ge=0)
    """How far apart the rewards of a certain pair are asked to be, as in Llama 2; 0: no margin."""
    optim: OptimConfig


def train(
    model: PreTrainedModel,
    pairs: Sequence[Preference],
    schedule: Sequence[Sequence[int]],
    config: RewardConfig,
    compute: ComputeConfig,
    pad_id: int,
) -> Iterator[Step]:
    """One step for each list of pair numbers in `schedule`; `model` is changed in place.

        loss = mean over pairs of  bradley_terry + centring (r_chosen + r_rejected)^2

    The centring term is that of Eisenstein et al., "Helping or Herding?" (2023), sec. 2.
    """
    model.train()
    optimizer = adamw(model, config.optim)
    for index, chosen in enumerate(schedule):
        loss_sum = accuracy_sum = margin_sum = 0.0
        num_tokens = num_positions = 0
        for batch in micro_batches(pair_groups(pairs, chosen), compute, pad_id, model.device):
            scores = rewards(model, batch).view(-1, 2)
            labels = [pairs[i // 2].probability for i in batch.indices[::2]]
            probabilities = torch.tensor(labels, device=scores.device)
            losses = bradley_terry_loss(
                scores[:, 0], scores[:, 1], probabilities, margin=config.margin
            )
            losses = losses + config.centring * scores.sum(1) ** 2
            (losses.sum() / len(chosen)).backward()
            loss_sum += losses.sum().item()
            # Of a pair labelled below 0.5 the rejected one is to be preferred.
            gaps = (scores[:, 0] - scores[:, 1]) * torch.sign(probabilities - 0.5)
            accuracy_sum += (gaps > 0).sum().item()
            margin_sum += gaps.sum().item()
            num_tokens += int(batch.mask.sum())
            num_positions += batch.num_tokens
        metrics = {
            "loss/bradley_terry": loss_sum / len(chosen),
            "pairs/accuracy": accuracy_sum / len(chosen),
            "pairs/margin": margin_sum / len(chosen),
            "tokens/trained": num_tokens,
            **work.passed("reward", "trained", positions=num_positions),
            **update(optimizer, config.optim, index, len(schedule)),
        }
        yield Step(index=index, metrics=metrics)


@torch.no_grad()
def score_pairs(
    model: PreTrainedModel, pairs: Sequence[Preference], compute: ComputeConfig, pad_id: int
) -> Float[Tensor, "pair 2"]:
    """Rewards of the chosen (first) and rejected completion of every pair, in eval mode."""
    model.eval()
    scores = torch.zeros(2 * len(pairs))
    groups = pair_groups(pairs, range(len(pairs)))
    for batch in micro_batches(groups, compute, pad_id, model.device):
        scores[batch.indices] = rewards(model, batch).cpu()
    return scores.view(-1, 2)
