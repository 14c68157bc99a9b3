"""REINFORCE leave-one-out against TRL's `RLOOTrainer`."""

import torch
from parity import online
from parity.rows import Row, relative
from parity.surrogates import TokenLosses, our_steps, per_sequence, their_steps

from stages.algorithms import kl
from stages.algorithms.aggregation import masked_sum
from stages.algorithms.group_advantages import leave_one_out
from stages.algorithms.losses.surrogates import sequence_ratio_surrogate

BETA = 0.05
# A whole completion's ratio moves much further than a token's: with more, every one is clipped.
LEARNING_RATE = 3e-4


def train(folder):
    from trl import RLOOConfig, RLOOTrainer

    return online.train(RLOOTrainer, RLOOConfig, folder, beta=BETA, learning_rate=LEARNING_RATE)


def test_advantages(tmp_path, record):
    """The penalty is in the reward: the sum of k1 over a completion's tokens."""
    result = train(tmp_path)
    rows = online.learnable([result.sampled], result.steps[0].weights)
    _, completions = online.token_lists(result.sampled)
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
    result = train(tmp_path)
    losses = TokenLosses(sequence_ratio_surrogate, low=0.2, high=0.2, normalise=False)
    agree(
        "RLOO",
        "ratio of whole completions, clipped",
        our_steps(result, losses, per_sequence),
        their_steps(result),
    )
    assert losses.clipped == [False, True]
