"""Training a process reward model on labelled steps."""

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from transformers import PreTrainedModel

from stages.algorithms.losses.reward_and_value_losses import balanced_weights, soft_step_label_loss
from stages.loops import epochs, step_targets, work
from stages.loops.step import Step
from stages.loops.step_targets import Targets
from stages.models import process_head
from stages.models.batch import Batch, micro_batches
from stages.models.device import ComputeConfig
from stages.optim import OptimConfig, adamw, update
from stages.params import Params
from stages.records.steps import StepLabels

Goals = Sequence[Sequence[float | None]]
"""Of each solution, the target of each step."""


class ProcessRewardConfig(Params):
    """The process reward model's loop."""

    targets: Targets
    class_balance: Literal["none", "balanced"]
    """`balanced`: right and wrong steps weigh the same in total; the scores are then no longer
    the probability that a step is right, but 1/2 is a better threshold where one is rare."""
    up_to_first_error: bool
    """Learn nothing from the steps after a solution's first error (Lightman et al. 2023)."""
    num_epochs: int = Field(gt=0)
    """Passes over the solutions."""
    batch_size: int = Field(gt=0)
    """Problems in an optimizer step, each with all its solutions: they share its reading."""
    optim: OptimConfig


def schedule(rows: Sequence[StepLabels], config: ProcessRewardConfig, seed: int) -> list[list[int]]:
    """Row numbers of each optimizer step: those of a problem together, each once an epoch."""
    of_problem: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        of_problem.setdefault(row.id, []).append(number)
    problems = list(of_problem.values())
    batches = epochs.batches(len(problems), config.num_epochs, config.batch_size, seed)
    return [[number for place in batch for number in problems[place]] for batch in batches]


def train(
    model: PreTrainedModel,
    rows: Sequence[StepLabels],
    schedule: Sequence[Sequence[int]],
    config: ProcessRewardConfig,
    compute: ComputeConfig,
    pad_id: int,
) -> Iterator[Step]:
    """One step for each list of row numbers in `schedule`; `model` is changed in place.

        loss = mean over the labelled steps of the optimizer step of  soft_step_label_loss

    A hard target is the soft one 0 or 1. The mean is over all labelled steps of the optimizer
    step, so no split into micro-batches changes it.

    Raises:
        ValueError: labels that do not fit their steps, a solution longer than the model, or an
            optimizer step without any label.
    """
    goals = [
        step_targets.targets(row, config.targets, up_to_first_error=config.up_to_first_error)
        for row in rows
    ]
    weights = (1.0, 1.0)
    if config.class_balance == "balanced":
        weights = balanced_weights(_labelled(goals, range(len(goals))))
    solutions = step_targets.solutions(rows)
    # A solution that does not fit is refused before anything is learned.
    process_head.groups(solutions, range(len(rows)), model, compute.row_tokens)
    model.train()
    optimizer = adamw(model, config.optim)
    for index, chosen in enumerate(schedule):
        num_labels = len(_labelled(goals, chosen))
        if not num_labels:
            raise ValueError(
                f"optimizer step {index}: none of its {len(chosen)} solutions has a labelled step "
                f"(the first is of problem {rows[chosen[0]].id}): leave such solutions out, or "
                f"raise the preset's batch_size"
            )
        # The others would only be read.
        used = [i for i in chosen if any(target is not None for target in goals[i])]
        parts = process_head.groups(solutions, used, model, compute.row_tokens)
        loss_sum, num_right, num_tokens, num_positions = 0.0, 0, 0, 0
        for batch in micro_batches(parts, compute, pad_id, model.device):
            logits = process_head.step_logits(model, batch, _labelled_ends(solutions, goals, batch))
            wanted = _labelled(goals, batch.indices).to(logits.device)
            losses = soft_step_label_loss(logits, wanted, weights=weights)
            (losses.sum() / num_labels).backward()
            loss_sum += losses.sum().item()
            num_right += int(((logits[:, 1] >= logits[:, 0]) == (wanted >= 0.5)).sum())
            num_tokens += int(batch.mask.sum())
            num_positions += batch.num_tokens
        metrics = {
            "loss/step_labels": loss_sum / num_labels,
            "steps/accuracy": num_right / num_labels,
            "steps/labelled": num_labels,
            "tokens/trained": num_tokens,
            **work.passed("reward", "trained", positions=num_positions),
            **update(optimizer, config.optim, index, len(schedule)),
        }
        yield Step(index=index, metrics=metrics)


def _labelled(goals: Goals, numbers: Sequence[int]) -> Float[Tensor, " step"]:
    """The targets of these solutions' labelled steps, in turn."""
    return torch.tensor([t for i in numbers for t in goals[i] if t is not None]).float()


def _labelled_ends(
    solutions: Sequence[process_head.Solution], goals: Goals, batch: Batch
) -> list[list[int]]:
    """Where the labelled steps of the batch's solutions end, in their order."""
    return [
        [
            end
            for end, target in zip(
                process_head.step_ends(solutions[i].steps), goals[i], strict=True
            )
            if target is not None
        ]
        for i in batch.indices
    ]
