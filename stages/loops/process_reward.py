"""Training of a process reward model on labelled steps, and its test on held-out solutions."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field

from stages.algorithms.losses.reward_and_value_losses import step_label_loss
from stages.algorithms.statistics.intervals import problem_numbers
from stages.algorithms.statistics.score_quality import (
    auc,
    balanced_accuracy,
    negative_log_likelihood,
)
from stages.config import Params
from stages.loops import epochs, work
from stages.loops.epochs import EpochsConfig
from stages.loops.state import Metrics, State, optimise
from stages.loops.work import Step
from stages.models import process_head
from stages.models.batch import model_batches
from stages.models.process_head import ProcessHead, TokenizedSolution
from stages.records.steps import StepLabels


class HardTargets(Params):
    """1 if the label is above the threshold, else 0."""

    kind: Literal["hard"]
    threshold: float = Field(ge=0, lt=1)
    """0: right as soon as one continuation was (Wang et al., "Math-Shepherd" (2024), eq. 3)."""


class SoftTargets(Params):
    """The label itself: the share of continuations that were right (Wang et al. 2024, eq. 4)."""

    kind: Literal["soft"]


Targets = Annotated[HardTargets | SoftTargets, Field(discriminator="kind")]


class ProcessRewardConfig(EpochsConfig):
    """The process reward model's loop. A row is a problem with all its solutions, read once."""

    targets: Targets
    up_to_first_error: bool
    """Ignore the steps after the first with a target below 1/2 (Lightman et al., "Let's Verify Step
    by Step" (2023), section 2.6)."""


def compute_targets(
    row: StepLabels, rule: Targets, *, up_to_first_error: bool
) -> list[float | None]:
    """Target of each step of a solution; see `ProcessRewardConfig`."""
    step_targets = row.labels
    if isinstance(rule, HardTargets):
        step_targets = [
            None if label is None else float(label > rule.threshold) for label in row.labels
        ]
    wrong = (i for i, target in enumerate(step_targets) if target is not None and target < 0.5)
    end = next(wrong, len(step_targets)) + 1 if up_to_first_error else len(step_targets)
    return [*step_targets[:end], *[None] * (len(step_targets) - end)]


def locate_targets(row: StepLabels, config: ProcessRewardConfig) -> list[tuple[int, float]]:
    """Token index of the end of each step that has a target, with the target."""
    step_targets = compute_targets(row, config.targets, up_to_first_error=config.up_to_first_error)
    ends = process_head.step_end_indices(row.step_ids)
    pairs = zip(ends, step_targets, strict=True)
    return [(end, target) for end, target in pairs if target is not None]


def list_solutions(rows: Sequence[StepLabels]) -> list[TokenizedSolution]:
    """Token ids of each row's prompt and steps."""
    return [TokenizedSolution(prompt_ids=row.prompt_ids, steps=row.step_ids) for row in rows]


def schedule_steps(
    rows: Sequence[StepLabels], config: ProcessRewardConfig, seed: int
) -> list[list[int]]:
    """Row numbers of each optimizer step: those of a problem together, each once per epoch."""
    of_problem: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        of_problem.setdefault(row.id, []).append(number)
    problems = list(of_problem.values())
    batches = epochs.batches(len(problems), config.num_epochs, config.batch_size, seed)
    return [[number for place in batch for number in problems[place]] for batch in batches]


def train(
    model: ProcessHead,
    rows: Sequence[StepLabels],
    schedule: Sequence[Sequence[int]],
    config: ProcessRewardConfig,
    state: State | None = None,
) -> Iterator[Step]:
    """Optimizer step for each list of row numbers in `schedule`; `model` is changed in place.

        loss = mean over the labelled steps of the optimizer step of  step_label_loss

    Hard targets are 0 or 1. A ValueError for an optimizer step without any label.
    """
    labelled_ends = [locate_targets(row, config) for row in rows]
    all_solutions = list_solutions(rows)
    # A solution that does not fit is refused before anything is learned.
    process_head.solution_groups(model, all_solutions, range(len(rows)))

    def gradient(index: int, chosen: Sequence[int]) -> Metrics:
        num_labels = sum(len(labelled_ends[i]) for i in chosen)
        if not num_labels:
            raise ValueError(
                f"optimizer step {index}: none of its {len(chosen)} solutions has a labelled step "
                f"(the first is of problem {rows[chosen[0]].id}): leave such solutions out, or "
                f"raise the preset's batch_size"
            )
        # Solutions without a target have no gradient.
        used = [i for i in chosen if labelled_ends[i]]
        parts = process_head.solution_groups(model, all_solutions, used)
        loss_sum, num_right, batches = 0.0, 0, list(model_batches(model, parts))
        for batch in batches:
            of_batch = [labelled_ends[i] for i in batch.indices]
            ends = [[end for end, _ in item] for item in of_batch]
            logits = model(batch, ends)
            probabilities = torch.tensor([target for item in of_batch for _, target in item])
            probabilities = probabilities.float().to(logits.device)
            losses = step_label_loss(logits, probabilities)
            (losses.sum() / num_labels).backward()
            loss_sum += losses.sum().item()
            num_right += int(((logits[:, 1] >= logits[:, 0]) == (probabilities >= 0.5)).sum())
        return {
            "loss/step_labels": loss_sum / num_labels,
            "steps/accuracy": num_right / num_labels,
            "steps/labelled": num_labels,
            **work.count_trained("reward", batches, logits=False),
        }

    return optimise(model, config.optim, schedule, gradient, state)


def measure_quality(
    rows: Sequence[StepLabels], scores: Sequence[Sequence[float]], rule: Targets
) -> dict[str, Any]:
    """Agreement of scores with the labels (`labels`) and with the truth, if known (`truth`).

    A soft label counts as right from 1/2 on; the negative log-likelihood uses the soft label. Only
    solutions with a label are counted (`solutions`): the others are for reranking.
    """
    all_targets = [compute_targets(row, rule, up_to_first_error=False) for row in rows]
    scored = [
        (row, row_scores, labels)
        for row, row_scores, labels in zip(rows, scores, all_targets, strict=True)
        if any(label is not None for label in labels)
    ]
    labelled = [
        (row.id, score, label)
        for row, row_scores, labels in scored
        for score, label in zip(row_scores, labels, strict=True)
        if label is not None
    ]
    true_steps = [
        (row.id, score, float(right))
        for row, row_scores, _ in scored
        if row.true_labels is not None
        for score, right in zip(row_scores, row.true_labels, strict=True)
        if right is not None
    ]
    return {
        "solutions": len(scored),
        "labels": measure_agreement(labelled),
        "truth": measure_agreement(true_steps),
        "lowest_is_last": lowest_is_last([row_scores for _, row_scores, _ in scored]),
    }


def measure_agreement(steps: Sequence[tuple[str, float, float]]) -> dict[str, float | int | None]:
    """Agreement of step scores with labels, both thresholded at 1/2; rows: problem, score, label.

    `auroc` is over all steps, as one threshold sees them; `auroc_within_problem` the mean over
    the problems that have right and wrong steps, which no difference in difficulty can raise.
    None: there are only right or only wrong steps.
    """
    if not steps:
        return {"steps": 0}
    problems = problem_numbers([problem for problem, _, _ in steps])
    scores = np.array([score for _, score, _ in steps])
    labels = np.array([label for *_, label in steps])
    is_right = labels >= 0.5
    inside = [problems == number for number in range(problems.max() + 1)]
    within = [auc(scores[members], is_right[members]) for members in inside]
    compared = [value for value in within if value is not None]
    return {
        "steps": len(steps),
        "right_share": float(is_right.mean()),
        "balanced_accuracy": balanced_accuracy(scores, is_right, threshold=0.5),
        "negative_log_likelihood": negative_log_likelihood(scores, labels),
        "auroc": auc(scores, is_right),
        "auroc_within_problem": sum(compared) / len(compared) if compared else None,
    }


def lowest_is_last(scores: Sequence[Sequence[float]]) -> float | None:
    """Share of the solutions of several steps in which only the last step has the lowest score.

    A process reward model with a large share judges outcomes rather than steps. Zhang et al., "The
    Lessons of Developing Process Reward Models in Mathematical Reasoning" (2025), measure above
    40 % for several models, https://arxiv.org/abs/2501.07301. None: no solution has several steps.
    """
    several = [row_scores for row_scores in scores if len(row_scores) > 1]
    if not several:
        return None
    return sum(row_scores[-1] < min(row_scores[:-1]) for row_scores in several) / len(several)
