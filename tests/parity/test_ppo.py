"""Proximal policy optimisation against TRL 1.9.2, the last but experimental `PPOTrainer`.

TRL 1.9.2 runs in a process of its own (ppo_trl_1_9.py) and writes what it computed.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from parity import ours, ppo_settings, reference, trl_1_9
from parity.reference import Computed, Weights
from parity.rows import Row, relative
from parity.trl_1_9 import TRL, needs_trl_1_9
from safetensors.torch import load_file
from tiny_checkpoints import load

from stages.algorithms import kl
from stages.algorithms.aggregation import masked_whiten, token_mean
from stages.algorithms.losses.reward_and_value_losses import clipped_value_loss
from stages.algorithms.losses.surrogates import clipped_surrogate
from stages.algorithms.token_advantages import gae
from stages.loops.rl import logprobs_no_grad
from stages.models.batch import Batch
from stages.models.policy import Policy
from stages.models.scalar_head import ScalarHead

pytestmark = needs_trl_1_9


@dataclass(frozen=True, kw_only=True, slots=True)
class Update:
    """One optimizer step of TRL's: its variables, weights and gradients."""

    state: Weights
    weights: Weights
    gradients: Weights

    @staticmethod
    def read(path: Path) -> "Update":
        parts: dict[str, Weights] = {"state": {}, "weights": {}, "gradients": {}}
        for key, value in load_file(path).items():
            kind, name = key.split("/", 1)
            parts[kind][name] = value
        return Update(**parts)


@pytest.fixture(scope="module")
def updates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Update]]:
    """The two updates of a run that stops at this token ("none": at the length limit)."""

    @functools.cache
    def run(stop_token: str) -> list[Update]:
        folder = tmp_path_factory.mktemp(stop_token)
        trl_1_9.run("parity.ppo_trl_1_9", str(folder), stop_token)
        return [Update.read(folder / f"{number}.safetensors") for number in range(2)]

    return run


def rows(update: Update) -> Batch:
    """Prompts and completions as one batch of ours, in TRL's order."""
    prompts = [
        [i for i in row if i != ppo_settings.PADDING] for row in update.state["queries"].tolist()
    ]
    counted = ~update.state["padding_mask"]
    completions = [
        ids[keep].tolist() for ids, keep in zip(update.state["responses"], counted, strict=True)
    ]
    return ours.one_batch(prompts, completions)


def in_our_order(batch: Batch, values: torch.Tensor) -> torch.Tensor:
    return values[torch.tensor(batch.indices)][:, : batch.mask.shape[1]]


def test_experience_and_losses(updates, record):
    """Every completion fills the length limit, so that TRL's layout is ours."""
    result = updates("none")
    state, batch = result[0].state, rows(result[0])
    assert not state["padding_mask"].any()
    theirs = {name: in_our_order(batch, value) for name, value in state.items() if value.dim() == 2}
    differences = {}

    (old,) = logprobs_no_grad(Policy(load("llama", 0)), [batch], ppo_settings.TEMPERATURE)
    (ref,) = logprobs_no_grad(Policy(load("llama", 1)), [batch], ppo_settings.TEMPERATURE)
    with torch.no_grad():
        scores = ScalarHead(reference.scalar_model(2))(batch)
        values = ScalarHead(reference.scalar_model(3))(batch, each_token=True)
    differences["log-probs of policy and reference"] = max(
        relative(old, theirs["logprobs"]), relative(ref, theirs["ref_logprobs"])
    )
    differences["values and scores"] = max(
        relative(values, theirs["values"]),
        relative(scores, state["scores"][torch.tensor(batch.indices)]),
    )
    rewards = -ppo_settings.KL_COEF * kl.k1(old, ref)
    rewards[:, -1] += scores
    advantages, returns = gae(
        rewards, values, batch.mask, gamma=ppo_settings.GAMMA, lam=ppo_settings.LAM
    )
    differences["rewards, GAE and returns"] = max(
        relative(rewards, theirs["rewards"]), relative(returns, theirs["returns"])
    )
    whitened = masked_whiten(advantages, batch.mask, eps=ppo_settings.WHITEN_EPS)
    number = batch.mask.sum()
    differences["whitened advantages"] = relative(
        whitened * ((number - 1) / number).sqrt(), theirs["advantages"]
    )
    for compared, value in differences.items():
        note = "after our divisor n is turned into TRL's n - 1" if "whitened" in compared else ""
        record(Row(method="PPO", compared=compared, value=value, note=note, trl=TRL))
    assert max(differences.values()) <= 1e-5


@pytest.mark.parametrize("stop_token", ["none", "eos"])
def test_policy_loss(stop_token, updates, agree):
    result = updates(stop_token)
    batch = rows(result[0])
    old = in_our_order(batch, result[0].state["logprobs"])
    advantages = in_our_order(batch, result[0].state["advantages"])
    clipped = []

    def loss(model):
        logprobs, *_ = Policy(model)(batch, temperature=ppo_settings.TEMPERATURE)
        losses, active = clipped_surrogate(
            logprobs, old, advantages, low=ppo_settings.CLIP, high=ppo_settings.CLIP
        )
        clipped.append((active & batch.mask).any().item())
        return token_mean(losses, batch.mask, num_tokens=int(batch.mask.sum()))

    agree(
        "PPO",
        f"policy loss, stop token {stop_token}",
        [ours.computed(load("llama"), part(u.weights, "policy."), loss) for u in result],
        [
            Computed(loss=u.state["pg_loss"].item(), gradients=part(u.gradients, "policy."))
            for u in result
        ],
        trl=TRL,
    )
    assert clipped == [False, True]


def test_value_loss(updates, agree):
    result = updates("none")
    batch = rows(result[0])
    old = in_our_order(batch, result[0].state["values"])
    returns = in_our_order(batch, result[0].state["returns"])

    def loss(model):
        losses = clipped_value_loss(
            ScalarHead(model)(batch, each_token=True), old, returns, clip=ppo_settings.CLIP_VALUE
        )
        return token_mean(losses, batch.mask, num_tokens=int(batch.mask.sum()))

    agree(
        "PPO",
        "value loss",
        [
            ours.computed(reference.scalar_model(3), part(u.weights, "value_model."), loss)
            for u in result
        ],
        [
            Computed(
                loss=u.state["vf_loss"].item(),
                gradients={
                    name: value / ppo_settings.VALUE_WEIGHT
                    for name, value in part(u.gradients, "value_model.").items()
                },
            )
            for u in result
        ],
        note="TRL adds it to the policy loss times `vf_coef`; ours has an optimizer of its own",
        trl=TRL,
    )


def part(tensors: Weights, prefix: str) -> Weights:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def test_the_score_of_a_completion_that_ends_early(updates, record):
    """TRL pays it one position after the end of sequence, where padding is; ours at the end.

    On its own layout (one position more, with its rewards and values) the recursions agree.
    """
    state = updates("eos")[0].state
    last = (~state["padding_mask"]).sum(1) - 1
    early = last < state["rewards"].shape[1] - 1
    assert early.any()
    penalty = -ppo_settings.KL_COEF * (state["logprobs"] - state["ref_logprobs"])
    paid = state["rewards"] - penalty
    numbers = torch.arange(len(last))
    torch.testing.assert_close(paid[numbers, last + early], state["scores"])
    assert (paid[numbers, last][early] == 0).all()

    _, returns = gae(
        state["rewards"],
        state["values"],
        ~state["padding_mask_p1"],
        gamma=ppo_settings.GAMMA,
        lam=ppo_settings.LAM,
    )
    difference = relative(returns, state["returns"])
    record(
        Row(
            method="PPO",
            compared="GAE where a completion ends early, on TRL's layout",
            value=difference,
            note="TRL pays the score on the padding after the end of sequence (trl#3750)",
            trl=TRL,
        )
    )
    assert difference <= 1e-5
