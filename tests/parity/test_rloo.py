"""REINFORCE leave-one-out against TRL's `RLOOTrainer`."""

import torch
from parity import online, ours
from parity.rows import Row, relative
from tiny_checkpoints import load

from stages.algorithms import kl
from stages.algorithms.advantages.leave_one_out import leave_one_out
from stages.algorithms.aggregation import sequence_mean
from stages.algorithms.losses.sequence_ratio import sequence_ratio_surrogate
from stages.algorithms.masking import masked_sum

BETA = 0.05


def train(folder):
    from trl import RLOOConfig, RLOOTrainer

    return online.train(RLOOTrainer, RLOOConfig, folder, beta=BETA)


def test_advantages(tmp_path, record):
    """The penalty is in the reward: the sum of k1 over a completion's tokens."""
    found = train(tmp_path)
    rows = online.learnable(found.sampled, found.steps[0].weights)
    _, completions = online.token_lists(found.sampled)
    penalty = torch.stack(
        [
            masked_sum(values[None], keep[None])
            for values, keep in zip(
                kl.k1(rows.old_logprobs, rows.ref_logprobs), rows.batch.mask, strict=True
            )
        ]
    )
    rewards = torch.tensor(online.reward(completions))[torch.tensor(rows.batch.indices)]
    groups = torch.tensor(rows.batch.indices) // online.GROUP
    ours_found = leave_one_out(
        rewards - BETA * penalty, groups, counted=torch.ones_like(groups, dtype=torch.bool)
    )
    difference = relative(ours_found, rows.advantages)
    record(Row(method="RLOO", compared="advantages, k1 in the reward", value=difference))
    assert difference <= 1e-5


def test_loss(tmp_path, agree):
    found = train(tmp_path)
    computed, clipped = [], []
    for step in found.steps:
        (batch,) = step.batches
        rows = online.learnable(batch, found.steps[0].weights)

        def loss(model, rows=rows):
            logprobs, mask = rows.logprobs(model), rows.batch.mask
            losses, active = sequence_ratio_surrogate(
                logprobs, rows.old_logprobs, rows.advantages[:, None].expand_as(logprobs), mask,
                clip_low=0.2, clip_high=0.2, normalise=False,
            )  # fmt: skip
            clipped.append((active & mask).any().item())
            return sequence_mean(losses, mask, num_sequences=len(mask))

        computed.append(ours.computed(load("llama"), step.weights, loss))
    agree(
        "RLOO",
        "ratio of whole completions, clipped",
        computed,
        [step.computed for step in found.steps],
    )
    assert clipped == [False, True]
