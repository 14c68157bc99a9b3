"""PPO and the loss of step labels against TRL 1.9.2, the last with such trainers (`trl_1_9`)."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from parity import ours, reference, trl_1_9
from parity.rows import Computed, Row, Weights
from parity.trl_1_9 import (
    CLIP,
    CLIP_VALUE,
    GAMMA,
    KL_COEF,
    LAM,
    LONGEST,
    MICRO_BATCHES,
    PADDING,
    TEMPERATURE,
    TENSORS,
    TRL,
    VALUE_WEIGHT,
    Solution,
    solutions,
)
from tiny_checkpoints import load
from torch import Tensor
from transformers import PreTrainedModel

from stages.algorithms import kl
from stages.algorithms.aggregation import masked_whiten, token_mean
from stages.algorithms.losses.reward_and_value_losses import clipped_value_loss, step_label_loss
from stages.algorithms.losses.surrogates import clipped_surrogate
from stages.algorithms.token_advantages import gae
from stages.loops.rl import logprobs_no_grad
from stages.models.batch import Batch
from stages.models.forward_check import compute_hidden_states
from stages.models.policy import Policy
from stages.models.scalar_head import ScalarHead

pytestmark = trl_1_9.needs_trl_1_9
WHITEN_EPS = 1e-8
"""Fixed in TRL."""
row = functools.partial(Row, trl=TRL)


@pytest.fixture(scope="module")
def updates(tmp_path_factory):
    """The two updates of a run that stops at this token ("none": at the length limit)."""

    @functools.cache
    def run(stop_token: str) -> list[list[Weights]]:
        folder = tmp_path_factory.mktemp(stop_token)
        trl_1_9.run(folder, stop_token)
        return [trl_1_9.read(folder / f"{number}.safetensors", "state", "weights", "gradients")
                for number in range(2)]  # fmt: skip

    return run


def read_rows(state: Weights) -> tuple[Batch, dict[str, Tensor]]:
    """Prompts and completions as one batch of ours, and TRL's grids in its order."""
    prompts = [[i for i in ids if i != PADDING] for ids in state["queries"].tolist()]
    pairs = zip(state["responses"], ~state["padding_mask"], strict=True)
    batch = ours.one_batch(prompts, [ids[keep].tolist() for ids, keep in pairs])
    order, width = torch.tensor(batch.indices), batch.mask.shape[1]
    grids = {name: value[order][:, :width] for name, value in state.items() if value.dim() == 2}
    return batch, grids | {"scores": state["scores"][order]}


def part(tensors: Weights, prefix: str) -> Weights:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def test_experience_of_ppo_is_that_of_trl(updates, agree):
    """Every completion fills the length limit, so that TRL's layout is ours."""
    state = updates("none")[0][0]
    assert not state["padding_mask"].any()
    batch, theirs = read_rows(state)
    (old,) = logprobs_no_grad(Policy(load("llama", 0)), [batch], TEMPERATURE)
    (ref,) = logprobs_no_grad(Policy(load("llama", 1)), [batch], TEMPERATURE)
    with torch.no_grad():
        scores = ScalarHead(reference.scalar_model(2))(batch)
        values = ScalarHead(reference.scalar_model(3))(batch, each_token=True)
    rewards = -KL_COEF * kl.k1(old, ref)
    rewards[:, -1] += scores
    advantages, returns = gae(rewards, values, batch.mask, gamma=GAMMA, lam=LAM)
    number = batch.mask.sum()
    whitened = masked_whiten(advantages, batch.mask, eps=WHITEN_EPS) * (1 - 1 / number).sqrt()
    for compared, computed, note in (
        ("log-probs of policy and reference", {"logprobs": old, "ref_logprobs": ref}, ""),
        ("values and scores", {"values": values, "scores": scores}, ""),
        ("rewards, GAE and returns", {"rewards": rewards, "returns": returns}, ""),
        ("whitened advantages", {"advantages": whitened},
         "after our divisor n is turned into TRL's n - 1"),
    ):  # fmt: skip
        agree(row("PPO", compared, note), [*computed.values()], [theirs[name] for name in computed])


@pytest.mark.parametrize("stop_token", ["none", "eos"])
def test_the_policy_loss_of_ppo_is_that_of_trl(stop_token, updates, agree):
    result = updates(stop_token)
    batch, theirs = read_rows(result[0][0])
    number, clipped = int(batch.mask.sum()), []

    def loss(model: Any) -> Tensor:
        logprobs, *_ = Policy(model)(batch, temperature=TEMPERATURE)
        losses, active = clipped_surrogate(
            logprobs, theirs["logprobs"], theirs["advantages"], low=CLIP, high=CLIP
        )
        clipped.append((active & batch.mask).any().item())
        return token_mean(losses, batch.mask, num_tokens=number)

    agree(
        row("PPO", f"policy loss, stop token {stop_token}"),
        [ours.computed(load("llama"), part(w, "policy."), loss) for _, w, _ in result],
        [Computed(loss=state["pg_loss"].item(), gradients=part(g, "policy."))
         for state, _, g in result],
    )  # fmt: skip
    assert clipped == [False, True]


def test_the_value_loss_of_ppo_is_that_of_trl(updates, agree):
    result = updates("none")
    batch, theirs = read_rows(result[0][0])

    def loss(model: Any) -> Tensor:
        values = ScalarHead(model)(batch, each_token=True)
        losses = clipped_value_loss(values, theirs["values"], theirs["returns"], clip=CLIP_VALUE)
        return token_mean(losses, batch.mask, num_tokens=int(batch.mask.sum()))

    note = "TRL adds it to the policy loss times `vf_coef`; ours has an optimizer of its own"
    model, prefix = reference.scalar_model(3), "value_model."
    expected = [
        {name: value / VALUE_WEIGHT for name, value in part(g, prefix).items()}
        for _, _, g in result
    ]
    agree(
        row("PPO", "value loss", note),
        [ours.computed(model, part(w, prefix), loss) for _, w, _ in result],
        [Computed(loss=state["vf_loss"].item(), gradients=gradients)
         for (state, *_), gradients in zip(result, expected, strict=True)],
    )  # fmt: skip


def test_trl_pays_the_score_of_a_completion_that_ends_early_on_its_padding(updates, agree):
    """On its own layout (one position more, with its rewards and values) the recursions agree."""
    state = updates("eos")[0][0]
    last = (~state["padding_mask"]).sum(1) - 1
    early = last < state["rewards"].shape[1] - 1
    assert early.any()
    paid = state["rewards"] + KL_COEF * (state["logprobs"] - state["ref_logprobs"])
    numbers = torch.arange(len(last))
    torch.testing.assert_close(paid[numbers, last + early], state["scores"])
    assert (paid[numbers, last][early] == 0).all()
    mask = ~state["padding_mask_p1"]
    _, returns = gae(state["rewards"], state["values"], mask, gamma=GAMMA, lam=LAM)
    agree(row("PPO", "GAE where a completion ends early, on TRL's layout",
              "TRL pays the score on the padding after the end of sequence (trl#3750)"),
          returns, state["returns"])  # fmt: skip


TokenRow = tuple[list[int], list[int]]
"""Token ids without padding, and the label of each: -100 where there is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One optimizer step of TRL's: the weights before it, and the rows of each micro-batch."""

    computed: Computed
    weights: Weights
    micro_batches: list[list[TokenRow]]


@pytest.fixture(scope="module")
def read_step(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prm")
    trl_1_9.run(folder, "prm")

    def read(case: str) -> Step:
        loss, weights, gradients, batches = trl_1_9.read(
            folder / f"{case}.safetensors", "loss", "weights", "gradients", "batches"
        )
        columns = [[batches[f"{i}/{name}"] for name in TENSORS]
                   for i in range(len(batches) // len(TENSORS))]  # fmt: skip
        rows = [
            [(ids[real.bool()].tolist(), labels[real.bool()].tolist())
             for ids, real, labels in zip(*batch, strict=True)]
            for batch in columns
        ]  # fmt: skip
        computed = Computed(loss=loss[""].item(), gradients=gradients)
        return Step(computed=computed, weights=weights, micro_batches=rows)

    return read


def token_row(solution: Solution, longest: int) -> TokenRow:
    """Our own token ids and labels of a solution, cut at `longest` tokens."""
    completion, start = solution.completion_ids(), solution.prompt_ids
    labels = [-100] * (len(start) + len(completion))
    for end, label in zip(solution.ends(), solution.labels, strict=True):
        labels[len(start) + end] = label
    return [*start, *completion][:longest], labels[:longest]


def split(step: Step, longest: int) -> list[list[Solution]]:
    """The solutions of each of TRL's micro-batches, whose rows must be ours."""
    rest, parts = [(token_row(solution, longest), solution) for solution in solutions()], []
    for rows in step.micro_batches:
        parts.append([])
        for ids in rows:
            (place,) = (i for i, (expected, _) in enumerate(rest) if expected == ids)
            parts[-1].append(rest.pop(place)[1])
    assert not rest
    return parts


def step_losses(model: PreTrainedModel, rows: Sequence[Solution], longest: int) -> Tensor:
    """The head at the last token of each step that is within `longest` tokens, and the loss."""
    batch = ours.one_batch([r.prompt_ids for r in rows], [r.completion_ids() for r in rows])
    positions, labels = [], []
    for index, last in zip(batch.indices, batch.last_index.tolist(), strict=True):
        solution = rows[index]
        first = last - (len(solution.completion_ids()) - 1)
        for end, label in zip(solution.ends(), solution.labels, strict=True):
            if len(solution.prompt_ids) + end < longest:
                positions.append(first + end)
                labels.append(label)
    scores = model.score(compute_hidden_states(model, batch)[positions])
    return step_label_loss(scores, torch.tensor(labels, dtype=scores.dtype))


FUNCTION = "`losses/reward_and_value_losses`"
NOTES = {
    "whole": (
        f"{FUNCTION}, one step, mean over labelled tokens", 1024,
        "TRL tokenizes prompt, steps and separator apart and puts the label on the separator's "
        "last token, as here; its `disable_dropout` reaches the head's dropout, not the "
        "attention's (first row)",
    ),
    "micro_batches": (
        f"{FUNCTION}, two micro-batches", 1024,
        "the sum of the micro-batches' means, undivided, which grows with their number: the "
        "step's number of labels does not reach the loss of transformers' token classifiers; "
        "ours is a mean over the step's labels, whatever the split",
    ),
    "truncated": (
        f"{FUNCTION}, `max_length` {LONGEST}", LONGEST,
        "TRL cuts the end of a solution and its labels (1024 tokens by default); where no label "
        "is left, its loss is NaN and ours a ValueError",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NOTES)
def test_a_step_of_a_process_model_is_that_of_trl(case, read_step, agree):
    step, (compared, longest, note) = read_step(case), NOTES[case]
    parts = split(step, longest)
    assert len(parts) == (MICRO_BATCHES if case == "micro_batches" else 1)
    labels = [[label for *_, row in part for label in row if label >= 0]
              for part in step.micro_batches]  # fmt: skip
    assert set(labels[0]) == {0, 1}
    whole = sum(len(row.steps) for row in solutions())
    assert (sum(map(len, labels)) < whole) == (case == "truncated")
    assert case != "micro_batches" or len({len(part) for part in labels}) > 1
    result = ours.computed(
        trl_1_9.step_model(), step.weights,
        lambda model: sum(step_losses(model, rows, longest).mean() for rows in parts),
    )  # fmt: skip
    agree(row("process reward model", compared, note), result, step.computed)


def test_a_batch_without_labels_is_nan_in_trl_and_refused_here(read_step):
    step = read_step("without_labels")
    assert all(label == -100 for _, labels in step.micro_batches[0] for label in labels)
    assert math.isnan(step.computed.loss)
    with pytest.raises(ValueError, match="labelled"):
        step_losses(trl_1_9.step_model(), solutions(), 3)
