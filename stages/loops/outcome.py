"""Training an outcome reward model on completions whose answers are known to be right or wrong."""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from transformers import PreTrainedModel

from stages.algorithms.losses.reward_and_value_losses import outcome_label_loss
from stages.loops import work
from stages.loops.step import Step
from stages.models.batch import Group, micro_batches, split_group
from stages.models.device import ComputeConfig
from stages.models.scalar_head import rewards
from stages.optim import OptimConfig, adamw, update
from stages.params import Params
from stages.records.preferences import Outcome


class OutcomeConfig(Params):
    """The outcome reward model's data and loop."""

    max_per_problem: int = Field(ge=2)
    """At most so many completions of one problem, right and wrong as evenly as can be."""
    one_class_weight: float = Field(ge=0, le=1)
    """Of a problem whose completions are all right or all wrong; 0: left out. One with both: 1."""
    num_epochs: int = Field(gt=0)
    """Passes over the problems; more than a few overfit."""
    batch_size: int = Field(gt=0)
    """Problems in an optimizer step, each with all of its completions."""
    optim: OptimConfig


def train(
    model: PreTrainedModel,
    problems: Sequence[Sequence[Outcome]],
    schedule: Sequence[Sequence[int]],
    config: OutcomeConfig,
    compute: ComputeConfig,
    pad_id: int,
) -> Iterator[Step]:
    """One step for each list of problem numbers in `schedule`; `model` is changed in place.

    loss = Σ weight outcome_label / Σ weight, both over all completions of the step
    """
    model.train()
    optimizer = adamw(model, config.optim)
    for index, numbers in enumerate(schedule):
        rows = [row for number in numbers for row in problems[number]]
        weights = torch.tensor([row.weight for row in rows])
        labels = torch.tensor([float(row.right) for row in rows])
        total = float(weights.sum())
        losses, probabilities = torch.zeros(2, len(rows))
        groups = outcome_groups([problems[number] for number in numbers], compute.row_tokens)
        num_tokens = num_positions = 0
        for batch in micro_batches(groups, compute, pad_id, model.device):
            scores = rewards(model, batch)
            some = outcome_label_loss(scores, labels[batch.indices].to(scores))
            ((some * weights[batch.indices].to(scores)).sum() / total).backward()
            losses[batch.indices] = some.detach().float().cpu()
            probabilities[batch.indices] = scores.detach().sigmoid().float().cpu()
            num_tokens += int(batch.mask.sum())
            num_positions += batch.num_tokens
        metrics = {
            "loss/outcome": float(weights @ losses) / total,
            "outcomes/accuracy": float(weights @ _right(probabilities, labels)) / total,
            "outcomes/probability": float(weights @ probabilities) / total,
            "tokens/trained": num_tokens,
            **work.passed("reward", "trained", positions=num_positions),
            **update(optimizer, config.optim, index, len(schedule)),
        }
        yield Step(index=index, metrics=metrics)


@torch.no_grad()
def score(
    model: PreTrainedModel,
    problems: Sequence[Sequence[Outcome]],
    compute: ComputeConfig,
    pad_id: int,
) -> Float[Tensor, " completion"]:
    """The logit of P(right) of every completion, in the order of the problems, in eval mode.

    P(right) as learned: had right and wrong been equally likely (`rewards/balanced_outcomes`).
    """
    model.eval()
    scores = torch.zeros(sum(map(len, problems)))
    groups = outcome_groups(problems, compute.row_tokens)
    for batch in micro_batches(groups, compute, pad_id, model.device):
        scores[batch.indices] = rewards(model, batch).float().cpu()
    return scores


def outcome_groups(problems: Sequence[Sequence[Outcome]], row_tokens: int) -> list[Group]:
    """Each problem's completions, numbered in reading order, in groups that fit a row."""
    parts: list[Group] = []
    start = 0
    for rows in problems:
        group = Group(
            prompt_ids=rows[0].prompt_ids,
            completions=[row.completion_ids for row in rows],
            indices=range(start, start + len(rows)),
        )
        parts += split_group(group, row_tokens)
        start += len(rows)
    return parts


def _right(
    probabilities: Float[Tensor, " batch"], labels: Float[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """1 where the likelier verdict is the true one, 1/2 where neither is likelier."""
    return 0.5 + 0.5 * torch.sign(probabilities - 0.5) * torch.sign(labels - 0.5)
