"""PPO and the loss of step labels against TRL 1.9.2, the last with such trainers (`trl_1_9`)."""

import functools
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


def token_row(solution: Solution) -> list[list[int]]:
    """Our own token ids of a solution, and the label of each: -100 where there is none."""
    ids = [*solution.prompt_ids, *solution.completion_ids()]
    labels = [-100] * len(ids)
    for end, label in zip(solution.ends(), solution.labels, strict=True):
        labels[len(solution.prompt_ids) + end] = label
    return [ids, labels]


def step_loss(model: PreTrainedModel) -> Tensor:
    """Mean of the loss over all steps, by the head at the last token of each."""
    rows = solutions()
    batch = ours.one_batch([r.prompt_ids for r in rows], [r.completion_ids() for r in rows])
    positions, labels = [], []
    for index, last in zip(batch.indices, batch.last_index.tolist(), strict=True):
        first = last - (len(rows[index].completion_ids()) - 1)
        positions += [first + end for end in rows[index].ends()]
        labels += rows[index].labels
    scores = model.score(compute_hidden_states(model, batch)[positions])
    return step_label_loss(scores, torch.tensor(labels, dtype=scores.dtype)).mean()


def test_a_step_of_a_process_model_is_that_of_trl(tmp_path, agree):
    trl_1_9.run(tmp_path, "prm")
    groups = ("loss", "weights", "gradients", "batch")
    loss, weights, gradients, batch = trl_1_9.read(tmp_path / "prm.safetensors", *groups)
    columns = zip(*(batch[name] for name in TENSORS), strict=True)
    rows = [[part[real.bool()].tolist() for part in (ids, labels)] for ids, real, labels in columns]
    assert sorted(rows) == sorted(map(token_row, solutions()))
    note = (
        "TRL tokenizes prompt, steps and separator apart and puts the label on the separator's "
        "last token, as here; its `disable_dropout` reaches the head's dropout, not the attention's"
    )
    compared = "`losses/reward_and_value_losses`, one step, mean over labelled tokens"
    result = ours.computed(trl_1_9.step_model(), weights, step_loss)
    theirs = Computed(loss=loss[""].item(), gradients=gradients)
    agree(row("process reward model", compared, note), result, theirs)
