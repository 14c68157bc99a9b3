"""Supervised fine-tuning on the completions of demonstrations.

With a teacher it is off-policy distillation, on the teacher's completions:

    loss = mean over tokens t of  KL(teacher || policy)_t - likelihood_coef log policy(x_t)

The KL is over the whole vocabulary, from a forward pass of the teacher on the same batch (sources:
`algorithms/forward_kl`). Without the KL, maximising the likelihood of the teacher's completions is
the sequence-level distillation of Kim and Rush (2016), who take completions of a beam search.
Departure from GKD: every token of an optimizer step has the same weight, as in TRL; in GKD every
completion has.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydantic import Field
from torch import Tensor

from stages.algorithms.aggregation import token_mean
from stages.config import Params
from stages.loops import work
from stages.loops.epochs import EpochsConfig
from stages.loops.state import Metrics, State, optimise
from stages.loops.work import Step
from stages.models.batch import Batch, Group, model_batches
from stages.models.policy import Policy
from stages.records.episodes import ERROR, FINISHED, Episode
from stages.records.problems import Demonstration
from stages.seeding import derive_seed


class SftConfig(EpochsConfig):
    """Sizes and rates, unless a preset overrides them. A row is a demonstration."""

    num_epochs: int = Field(ge=0)
    """Passes over the rows; 0: the untrained policy, for comparison."""


class TeacherLoss(Params):
    """Loss of off-policy distillation: temperature and weights."""

    temperature: float = Field(gt=0)
    """T, by which the logits of both models are divided."""
    likelihood_coef: float = Field(ge=0)
    """Weight of - log p of the teacher's tokens, beside the KL; 0: only the KL."""


class SftPreset(Params):
    """Preset of `train: sft`: demonstrations to learn from, and the loss."""

    num_epochs: int | None = Field(gt=0)
    learning_rate: float | None = Field(gt=0)
    """`num_epochs` and `learning_rate` replace those of section `sft`; null: the section's."""
    num_demonstrations: int | None = Field(gt=0)
    """Size of a random subset of the demonstrations, drawn once; null: all."""
    tasks: list[str] | None = Field(min_length=1)
    """Learn from demonstrations of these tasks: solve, chat, judge, critique, revise; null: all."""
    learn_prompt: bool
    """Whether the prompt is learned too: plain language modelling of documents."""
    teacher: TeacherLoss | None = None
    """Learn from the distribution of the teacher that wrote the demonstrations (`on: pairs/<row>`,
    `by: teacher`); null: only from the tokens."""

    def override(self, config: SftConfig) -> SftConfig:
        """The section's sizes and rates, or this preset's where it has them."""
        rate = self.learning_rate or config.optim.learning_rate
        optim = config.optim.model_copy(update={"learning_rate": rate})
        num_epochs = self.num_epochs or config.num_epochs
        return config.model_copy(update={"num_epochs": num_epochs, "optim": optim})


def check_teacher(on: str, preset: SftPreset, *, has_teacher: bool) -> None:
    """Raise a ValueError if the preset learns from a teacher and `on` has none."""
    if preset.teacher is not None and not has_teacher:
        raise ValueError(
            f"a preset with a teacher learns from completions of that teacher: "
            f"expected `on: pairs/<row>`, a row `by: teacher`, found `on: {ascii(on)[1:-1]:.100}`"
        )


def choose_demonstrations(
    rows: Sequence[Demonstration], preset: SftPreset, seed: int
) -> Sequence[Demonstration]:
    """Demonstrations that the preset selects; with `learn_prompt`, as documents (`as_document`)."""
    if not rows:
        raise ValueError(
            "expected demonstrations, found none: no row of the source ends with an answer. Start "
            "from `base`, or add solutions."
        )
    if preset.tasks is not None:
        tasks = sorted({row.task for row in rows})
        rows = [row for row in rows if row.task in preset.tasks]
        if not rows:
            raise ValueError(
                f"tasks: expected demonstrations of {preset.tasks}, found those of {tasks}. Name "
                f"one of these, or set tasks to null."
            )
    number = preset.num_demonstrations
    if number is not None:
        if number > len(rows):
            raise ValueError(
                f"num_demonstrations: expected at most {len(rows)}, the number of rows; found "
                f"{number}. Lower it, or set it to null."
            )
        order = np.random.default_rng(derive_seed(seed, "demonstrations")).permutation(len(rows))
        rows = [rows[i] for i in order[:number]]
    return [as_document(row) for row in rows] if preset.learn_prompt else rows


def select_successes(episodes: Sequence[Episode]) -> list[Demonstration]:
    """The distinct episodes that succeeded, as demonstrations of their sampled tokens.

    Episodes whose last turn was truncated or could not be parsed are left out at any reward.

    Rejection sampling (Yuan et al. 2023, https://arxiv.org/abs/2308.01825) over episodes.
    """
    rows: dict[tuple[Any, ...], Demonstration] = {}
    for episode in episodes:
        if not episode.success or episode.ending not in FINISHED:
            continue
        replies = (each for each in reversed(episode.messages) if each["role"] == "assistant")
        if ERROR in next(replies, {}):  # an unparsable call that was answered
            continue
        sampled_ids, insertions = episode.split_tokens()
        key = (episode.id, *episode.prompt_ids, *episode.token_ids)
        rows[key] = Demonstration(
            id=f"{episode.id}-{episode.index}", task="solve", prompt="", completion="",
            prompt_ids=episode.prompt_ids, completion_ids=sampled_ids,
            insertions=insertions or None,
        )  # fmt: skip
    return list(rows.values())


def as_document(row: Demonstration) -> Demonstration:
    """The row with all tokens except the first as its completion: the first has no context."""
    if row.insertions:
        raise ValueError(
            "learn_prompt learns documents, and episodes have turns of an environment, which are "
            "not imitated: take a preset with learn_prompt false, such as sft"
        )
    first, *rest = [*row.prompt_ids, *row.completion_ids]
    return replace(row, prompt_ids=[first], completion_ids=rest)


@dataclass(frozen=True, kw_only=True, slots=True)
class Teacher:
    """Frozen teacher policy, and the loss that learns from it."""

    policy: Policy
    loss: TeacherLoss


def train(
    model: Policy,
    rows: Sequence[Demonstration],
    schedule: Sequence[Sequence[int]],
    config: SftConfig,
    state: State | None = None,
    teacher: Teacher | None = None,
) -> Iterator[Step]:
    """Optimizer step for each list of row numbers in `schedule`; `model` is changed in place.

    loss = mean over the step's completion tokens t of
               - log p(x_t)                                            without a teacher
               KL(teacher || policy)_t - likelihood_coef log p(x_t)    with one
    """

    def gradient(_: int, numbers: Sequence[int]) -> Metrics:
        groups = [
            Group(
                prompt_ids=rows[i].prompt_ids,
                completions=[rows[i].completion_ids],
                indices=[i],
                insertions=[rows[i].insertions or ()],
            )
            for i in numbers
        ]
        num_tokens = sum(len(rows[i].completion_ids) for i in numbers)
        totals: dict[str, float] = {}
        num_read, num_positions = 0, 0
        for batch in model_batches(model, groups):
            loss, means = compute_losses(model, batch, num_tokens, teacher)
            loss.backward()
            for name, mean in means.items():
                totals[name] = totals.get(name, 0.0) + mean.item()
            num_read += batch.num_tokens
            num_positions += batch.num_padded
        metrics: Metrics = {
            **totals,
            "tokens/trained": num_tokens,
            **work.count_passes("policy", "trained", positions=num_read, outputs=num_tokens),
            "batch/padding_share": 1 - num_read / num_positions,
        }
        if teacher is not None:
            metrics |= work.count_passes("teacher", "read", positions=num_read, outputs=num_tokens)
        return metrics

    return optimise(model, config.optim, schedule, gradient, state)


def compute_losses(
    model: Policy, batch: Batch, num_tokens: int, teacher: Teacher | None
) -> tuple[Tensor, dict[str, Tensor]]:
    """The batch's part of the step's loss, and of the logged mean losses.

    Without a teacher the loss is the negative log-likelihood, `loss/nll`; with one it is
    KL + likelihood_coef x negative log-likelihood.
    """
    if teacher is None:
        logprobs = model(batch, temperature=1.0, entropy=False).logprobs
        nll = token_mean(-logprobs, batch.mask, num_tokens=num_tokens)
        return nll, {"loss/nll": nll}
    temperature, coef = teacher.loss.temperature, teacher.loss.likelihood_coef
    outputs = model.compute_forward_kl(
        batch, teacher.policy, temperature=temperature, learn_likelihood=coef > 0
    )
    nll = token_mean(-outputs.logprobs, batch.mask, num_tokens=num_tokens)
    divergence = token_mean(outputs.divergences, batch.mask, num_tokens=num_tokens)
    loss = divergence + coef * nll if coef else divergence
    return loss, {"loss/nll": nll, "loss/forward_kl": divergence}
