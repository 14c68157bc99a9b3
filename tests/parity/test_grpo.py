"""Group-relative policy optimisation against TRL's `GRPOTrainer`."""

import pytest
import torch
from parity import online, ours
from parity.rows import Row, relative
from tiny_checkpoints import load

from stages.algorithms import kl
from stages.algorithms.aggregation import sequence_mean, token_mean
from stages.algorithms.group_advantage import group_zscore
from stages.algorithms.losses.clipped_surrogate import clipped_surrogate


def train(folder, **changes):
    from trl import GRPOConfig, GRPOTrainer

    return online.train(GRPOTrainer, GRPOConfig, folder, **changes)


def per_sequence(losses, mask):
    return sequence_mean(losses, mask, num_sequences=len(mask))


def per_token(losses, mask):
    return token_mean(losses, mask, num_tokens=int(mask.sum()))


def surrogate(logprobs, rows, *, clip_low=0.2, clip_high=0.2):
    advantages = rows.advantages[:, None].expand_as(logprobs)
    return clipped_surrogate(
        logprobs, rows.old_logprobs, advantages, clip_low=clip_low, clip_high=clip_high
    )


def our_steps(found, token_losses, aggregate):
    """The steps TRL took, by `aggregate(token_losses(log-probs, rows), mask)`."""
    computed = []
    for step in found.steps:
        (batch,) = step.batches
        rows = online.learnable(batch, found.steps[0].weights)

        def loss(model, rows=rows):
            return aggregate(token_losses(rows.logprobs(model), rows), rows.batch.mask)

        computed.append(ours.computed(load("llama"), step.weights, loss))
    return computed


def test_advantages(tmp_path, record):
    found = train(tmp_path)
    _, completions = online.token_lists(found.sampled)
    rewards = torch.tensor(online.reward(completions)).view(-1, online.GROUP)
    difference = relative(
        group_zscore(rewards, ddof=1, eps=1e-4).view(-1), found.sampled["advantages"]
    )
    record(
        Row(
            method="GRPO",
            compared="advantages",
            value=difference,
            note="`ddof` 1, `eps` 1e-4 added to the standard deviation",
        )
    )
    assert difference <= 1e-6


@pytest.mark.parametrize(
    ("loss_type", "aggregate"),
    [("grpo", per_sequence), ("dapo", per_token), ("bnpo", per_token)],
)
def test_clipped_surrogate(loss_type, aggregate, tmp_path, agree):
    found = train(tmp_path, loss_type=loss_type, epsilon=0.2, epsilon_high=0.28)
    clipped = []

    def losses(logprobs, rows):
        values, active = surrogate(logprobs, rows, clip_high=0.28)
        clipped.append(active)
        return values

    agree(
        "GRPO",
        f"`loss_type` {loss_type}",
        our_steps(found, losses, aggregate),
        [step.computed for step in found.steps],
    )
    assert [active.any().item() for active in clipped] == [False, True]


@pytest.mark.parametrize("corrected", [False, True])
def test_kl(corrected, tmp_path, agree):
    found = train(tmp_path, loss_type="grpo", beta=0.04, use_bias_correction_kl=corrected)

    def losses(logprobs, rows):
        penalty = kl.k3(logprobs, rows.ref_logprobs)
        if corrected:
            penalty = penalty * torch.exp(logprobs - rows.old_logprobs)
        return surrogate(logprobs, rows)[0] + 0.04 * penalty

    agree(
        "GRPO",
        f"k3 in the loss, {'times the ratio' if corrected else 'plain'}",
        our_steps(found, losses, per_sequence),
        [step.computed for step in found.steps],
        note="TRL's default, `use_bias_correction_kl`" if corrected else "",
    )
