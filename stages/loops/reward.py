"""Training of reward models: on preference pairs, or on completions labelled right or wrong."""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from stages.algorithms.losses.reward_and_value_losses import bradley_terry_loss, outcome_label_loss
from stages.loops import work
from stages.loops.epochs import EpochsConfig
from stages.loops.preference import make_pair_groups, read_pair_labels
from stages.loops.state import Metrics, State, optimise
from stages.loops.work import Step
from stages.models.batch import Group, make_groups, model_batches
from stages.models.scalar_head import ScalarHead
from stages.records.preferences import Outcome, Preference


class RewardConfig(EpochsConfig):
    """A reward model's loop. A row is a pair."""

    centring: float = Field(ge=0)
    """Weight of (r_chosen + r_rejected)^2, which centres the rewards around 0; usually 0.01."""
    margin: float = Field(ge=0)
    """Required difference of the rewards of a pair with a sure label, as in Llama 2; 0: none."""


class OutcomeConfig(EpochsConfig):
    """An outcome reward model's data and loop. A row is a problem with all of its completions."""

    max_per_problem: int = Field(ge=2)
    """Most completions per problem, right and wrong ones as even in number as possible."""
    one_class_weight: float = Field(ge=0, le=1)
    """Weight of a problem with only right or only wrong completions, relative to any other; 0: left
    out."""


def train(
    model: ScalarHead,
    pairs: Sequence[Preference],
    schedule: Sequence[Sequence[int]],
    config: RewardConfig,
    state: State | None = None,
) -> Iterator[Step]:
    """Optimizer step for each list of pair numbers in `schedule`; `model` is changed in place.

        loss = mean over pairs of  bradley_terry + centring (r_chosen + r_rejected)^2

    The centring term is that of Eisenstein et al., "Helping or Herding?" (2023), sec. 2.
    """

    def gradient(_: int, numbers: Sequence[int]) -> Metrics:
        loss_sum = accuracy_sum = margin_sum = 0.0
        batches = list(model_batches(model, make_pair_groups(pairs, numbers)))
        for batch in batches:
            scores = model(batch).view(-1, 2)
            labels = read_pair_labels(pairs, batch)
            losses = bradley_terry_loss(scores[:, 0], scores[:, 1], labels, margin=config.margin)
            losses = losses + config.centring * scores.sum(1) ** 2
            (losses.sum() / len(numbers)).backward()
            loss_sum += losses.sum().item()
            # A label below 0.5 prefers the rejected completion.
            gaps = (scores[:, 0] - scores[:, 1]) * torch.sign(labels - 0.5)
            accuracy_sum += (gaps > 0).sum().item()
            margin_sum += gaps.sum().item()
        return {
            "loss/bradley_terry": loss_sum / len(numbers),
            "pairs/accuracy": accuracy_sum / len(numbers),
            "pairs/margin": margin_sum / len(numbers),
            **work.count_trained("reward", batches, logits=False),
        }

    return optimise(model, config.optim, schedule, gradient, state)


def train_outcomes(
    model: ScalarHead,
    problems: Sequence[Sequence[Outcome]],
    schedule: Sequence[Sequence[int]],
    config: OutcomeConfig,
    state: State | None = None,
) -> Iterator[Step]:
    """Optimizer step for each list of problem numbers in `schedule`; `model` is changed in place.

        loss = 1 / num_problems  Σ over problems and their completions  weight outcome_label_loss

    The weights of a problem with right and wrong completions sum to 1, those of any other problem
    to `one_class_weight`, and `count_problems` counts both as 1. The metrics are weighted means.
    """

    def gradient(_: int, numbers: Sequence[int]) -> Metrics:
        rows = [row for number in numbers for row in problems[number]]
        weights = torch.tensor([row.weight for row in rows])
        labels = torch.tensor([float(row.right) for row in rows])
        total = float(weights.sum())
        num_problems = count_problems([problems[number] for number in numbers])
        losses, probabilities = torch.zeros(2, len(rows))
        groups = make_problem_groups(
            [problems[number] for number in numbers], model.compute.row_tokens
        )
        batches = list(model_batches(model, groups))
        for batch in batches:
            scores = model(batch)
            batch_losses = outcome_label_loss(scores, labels[batch.indices].to(scores))
            ((batch_losses * weights[batch.indices].to(scores)).sum() / num_problems).backward()
            losses[batch.indices] = batch_losses.detach().float().cpu()
            probabilities[batch.indices] = scores.detach().sigmoid().float().cpu()
        # 1 if the likelier verdict is the true one, 1/2 if neither is likelier.
        right = 0.5 + 0.5 * torch.sign(probabilities - 0.5) * torch.sign(labels - 0.5)
        return {
            "loss/outcome": float(weights @ losses) / num_problems,
            "outcomes/accuracy": float(weights @ right) / total,
            "outcomes/probability": float(weights @ probabilities) / total,
            **work.count_trained("reward", batches, logits=False),
        }

    return optimise(model, config.optim, schedule, gradient, state)


def count_problems(problems: Sequence[Sequence[Outcome]]) -> float:
    """Number of problems, each counted as 1 whatever its weight.

    With the sum of the weights as divisor, `one_class_weight` would cancel in a step whose problems
    all have one class. If none has, number and sum are equal to the bit, as both are summed from
    the weights.
    """
    weights: list[float] = []
    for rows in problems:
        has_both = len({row.right for row in rows}) == 2
        weights += [row.weight if has_both else 1 / len(rows) for row in rows]
    return float(torch.tensor(weights).sum())


def make_problem_groups(problems: Sequence[Sequence[Outcome]], row_tokens: int) -> list[Group]:
    """Groups of the completions of each problem (`make_groups`)."""
    contents = [(rows[0].prompt_ids, [row.completion_ids for row in rows]) for rows in problems]
    return make_groups(contents, row_tokens)


@torch.no_grad()
def score(model: ScalarHead, groups: Sequence[Group]) -> Float[Tensor, " completion"]:
    """Reward of every completion of the groups, in eval mode, at its number in `indices`.

    An outcome model's is the logit of P(right) in a pool of which half is right
    (`rewards/verifier_labels`).
    """
    model.eval()
    scores = torch.zeros(sum(len(group.completions) for group in groups))
    for batch in model_batches(model, groups):
        scores[batch.indices] = model(batch).float().cpu()
    return scores
