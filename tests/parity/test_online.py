"""Losses and advantages of the trainers that sample, GRPO and RLOO, against ours on what they drew.

A new loss is a row of losses.yaml. The second optimizer step on the same completions is off policy:
some ratios are clipped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from parity import ours, reference
from parity.reference import text, trl_trainer
from parity.rows import Computed, Row, Weights
from ruamel.yaml import YAML
from tiny_checkpoints import load
from tiny_rollouts import make_prompts
from torch import Tensor

from stages.algorithms import kl
from stages.algorithms.aggregation import (
    fixed_length_mean,
    masked_sum,
    sequence_mean,
    token_mean,
)
from stages.algorithms.group_advantages import (
    batch_std,
    group_centred,
    group_zscore,
    leave_one_out,
)
from stages.algorithms.losses import surrogates
from stages.loops.rl import logprobs_no_grad
from stages.models.batch import Batch
from stages.models.policy import Policy

GROUP, LENGTH, TEMPERATURE = 4, 24, 0.7
SETTINGS = {
    "per_device_train_batch_size": 8, "max_steps": 2, "num_iterations": 2,
    "steps_per_generation": 1, "num_generations": GROUP, "max_completion_length": LENGTH,
    "temperature": TEMPERATURE, "learning_rate": 3e-3,
}  # fmt: skip
RLOO = {"beta": 0.05, "learning_rate": 3e-4}


def reward(completion_ids: Sequence[Sequence[int]], **rest: Any) -> list[float]:
    """Any function of the tokens that differs within a group."""
    return [sum(i % 2 for i in ids) / len(ids) + 0.1 * len(ids) for ids in completion_ids]


def train(name: str, folder: Path, **changes: Any) -> tuple[dict[str, Any], list[Any]]:
    """Samples for two prompts, and the optimizer steps on them.

    The policy has the weights of seed 1; the reference is read from disk and is seed 0.
    """
    policy = load("llama", 0)
    policy.load_state_dict(load("llama", 1).state_dict())
    rows = [{"prompt": text(p.prompt_ids)} for p in make_prompts(2)]
    trainer = trl_trainer(name, folder, rows, policy, SETTINGS | changes, reward_funcs=reward)
    sampled: list[dict[str, Any]] = []
    reference.listen(
        trainer, "_generate_and_score_completions", lambda args, result: sampled.append(result)
    )
    steps = reference.run(trainer)
    (drawn,) = sampled
    return drawn, steps


def token_lists(batch: dict[str, Any], name: str) -> list[list[int]]:
    """Prompts or completions of a batch of TRL's, without padding."""
    rows = zip(batch[f"{name}_ids"], batch[f"{name}_mask"], strict=True)
    return [ids[keep.bool()].tolist() for ids, keep in rows]


@dataclass(kw_only=True, slots=True)
class Rows:
    """TRL's micro-batches as one of ours, with what our loops keep beside it."""

    batch: Batch
    advantages: Tensor
    old_logprobs: Tensor
    ref_logprobs: Tensor


def read_rows(parts: Sequence[dict[str, Any]], old_weights: Weights) -> Rows:
    """The old policy has `old_weights`, the advantages are TRL's."""
    prompts, completions = (
        [ids for part in parts for ids in token_lists(part, name)]
        for name in ("prompt", "completion")
    )
    batch = ours.one_batch(prompts, completions)
    old = load("llama")
    old.load_state_dict(old_weights)
    (old_logprobs,) = logprobs_no_grad(Policy(old), [batch], TEMPERATURE)
    (ref_logprobs,) = logprobs_no_grad(Policy(load("llama")), [batch], TEMPERATURE)
    advantages = torch.cat([part["advantages"] for part in parts])
    return Rows(batch=batch, advantages=advantages[torch.tensor(batch.indices)],
                old_logprobs=old_logprobs, ref_logprobs=ref_logprobs)  # fmt: skip


def per_sequence(losses: Tensor, mask: Tensor) -> Tensor:
    return sequence_mean(losses, mask, num_sequences=len(mask))


def per_token(losses: Tensor, mask: Tensor) -> Tensor:
    return token_mean(losses, mask, num_tokens=int(mask.sum()))


def per_length(losses: Tensor, mask: Tensor) -> Tensor:
    return fixed_length_mean(losses, mask, num_sequences=len(mask), length=LENGTH)


def k3(logprobs: Tensor, rows: Rows) -> Tensor:
    return 0.04 * kl.k3(logprobs, rows.ref_logprobs)


def corrected_k3(logprobs: Tensor, rows: Rows) -> Tensor:
    return kl.importance_corrected(k3(logprobs, rows), logprobs, rows.old_logprobs)


PENALTIES = {None: lambda _logprobs, _rows: 0.0, "k3": k3, "corrected_k3": corrected_k3}
AGGREGATES = {"sequence": per_sequence, "token": per_token, "length": per_length}
LOSSES = YAML(typ="safe").load(Path(__file__).with_name("losses.yaml"))["policies"]


def compute_steps(case: dict[str, Any], steps: list[Any], *, mean_of_means: bool) -> list[Computed]:
    """The steps TRL took, by our functions; the second has to clip something."""
    surrogate = getattr(surrogates, case.get("surrogate", "clipped_surrogate"))
    numbers = case.get("numbers", {"low": 0.2, "high": 0.2})
    aggregate = AGGREGATES[case.get("aggregate", "sequence")]
    penalty, computed, clipped = PENALTIES[case.get("penalty")], [], []
    for step in steps:
        parts = [[batch] for batch in step.batches] if mean_of_means else [step.batches]
        rows_of_parts = [read_rows(part, steps[0].weights) for part in parts]

        def loss(model: Any, rows_of_parts: list[Rows] = rows_of_parts) -> Tensor:
            means = []
            for rows in rows_of_parts:
                mask = rows.batch.mask
                logprobs = Policy(model)(rows.batch, temperature=TEMPERATURE)[0]
                advantages = rows.advantages[:, None].expand_as(logprobs)
                losses, active = surrogate(logprobs, rows.old_logprobs, advantages, mask, **numbers)
                clipped.append(bool((active & mask).any()))
                means.append(aggregate(losses + penalty(logprobs, rows), mask))
            return torch.stack(means).mean()

        computed.append(ours.computed(load("llama"), step.weights, loss))
    number = len(clipped) // 2
    assert [any(clipped[:number]), any(clipped[number:])] == [False, True]
    return computed


@pytest.mark.parametrize("case", LOSSES, ids=lambda case: f"{case['method']} {case['compared']}")
def test_a_policy_loss_is_that_of_trl(case, tmp_path, agree):
    _, steps = train(case.get("trainer", "GRPO"), tmp_path, **case["settings"])
    number = case["settings"].get("gradient_accumulation_steps", 1)
    assert [len(step.batches) for step in steps] == [number, number]
    theirs, is_split = [step.computed for step in steps], case.get("mean_of_means", False)
    row = Row(case["method"], case["compared"], case.get("note", ""))
    agree(row, compute_steps(case, steps, mean_of_means=is_split), theirs)
    if is_split:  # which is not the mean over the step
        whole = compute_steps(case, steps, mean_of_means=False)[1]
        assert abs(whole.loss - theirs[1].loss) > 1e-3 * abs(theirs[1].loss)


STD = "`ddof` 1, `eps` 1e-4 added to the standard deviation"
ADVANTAGES = {"group": (group_zscore, {"ddof": 1, "eps": 1e-4}, STD),
              "batch": (batch_std, {"ddof": 1, "eps": 1e-4}, STD),
              "none": (group_centred, {}, "")}  # fmt: skip


@pytest.mark.parametrize("scale", ADVANTAGES)
def test_advantages_of_grpo_are_those_of_trl(scale, tmp_path, agree):
    drawn, _ = train("GRPO", tmp_path, scale_rewards=scale)
    rewards = torch.tensor(reward(token_lists(drawn, "completion")))
    function, numbers, note = ADVANTAGES[scale]
    groups, counted = torch.arange(len(rewards)) // GROUP, torch.ones_like(rewards).bool()
    result = function(rewards, groups, counted=counted, **numbers)
    row = Row("GRPO", f"advantages, `scale_rewards` {scale}", note)
    agree(row, result, drawn["advantages"], 1e-6)


def test_advantages_of_rloo_are_those_of_trl(tmp_path, agree):
    """The penalty is in the reward: the sum of k1 over a completion's tokens."""
    drawn, steps = train("RLOO", tmp_path, **RLOO)
    rows = read_rows([drawn], steps[0].weights)
    order = torch.tensor(rows.batch.indices)
    tokens = kl.k1(rows.old_logprobs, rows.ref_logprobs)
    pairs = zip(tokens, rows.batch.mask, strict=True)
    penalty = torch.stack([masked_sum(values[None], keep[None]) for values, keep in pairs])
    rewards = torch.tensor(reward(token_lists(drawn, "completion")))[order]
    groups, counted = order // GROUP, torch.ones_like(rewards).bool()
    result = leave_one_out(rewards - RLOO["beta"] * penalty, groups, counted=counted)
    agree(Row("RLOO", "advantages, k1 in the reward"), result, rows.advantages)
