"""Group-relative policy optimisation against TRL's `GRPOTrainer`."""

import pytest
import torch
from parity import online
from parity.rows import Row, relative
from parity.surrogates import (
    TokenLosses,
    our_steps,
    per_length,
    per_sequence,
    per_token,
    their_steps,
    train_grpo,
)

from stages.algorithms import kl
from stages.algorithms.group_advantages import batch_std, group_centred, group_zscore
from stages.algorithms.losses.surrogates import (
    cispo,
    clipped_surrogate,
    dual_clip_surrogate,
    sequence_ratio_surrogate,
)

NOTES = {
    "dr_grpo": "TRL's length is `max_completion_length`",
}


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_advantages(scale, tmp_path, record):
    result = train_grpo(tmp_path, scale_rewards=scale)
    _, completions = online.token_lists(result.sampled)
    rewards = torch.tensor(online.reward(completions))
    groups = torch.arange(len(rewards)) // online.GROUP
    advantage, numbers = {
        "group": (group_zscore, {"ddof": 1, "eps": 1e-4}),
        "batch": (batch_std, {"ddof": 1, "eps": 1e-4}),
        "none": (group_centred, {}),
    }[scale]
    every = torch.ones(len(rewards), dtype=torch.bool)
    advantages = advantage(rewards, groups, counted=every, **numbers)
    difference = relative(advantages, result.sampled["advantages"])
    note = "" if scale == "none" else "`ddof` 1, `eps` 1e-4 added to the standard deviation"
    record(
        Row(
            method="GRPO",
            compared=f"advantages, `scale_rewards` {scale}",
            value=difference,
            note=note,
        )
    )
    assert difference <= 1e-6


@pytest.mark.parametrize(
    ("loss_type", "aggregate"),
    [("grpo", per_sequence), ("dapo", per_token), ("bnpo", per_token), ("dr_grpo", per_length)],
)
def test_clipped_surrogate(loss_type, aggregate, tmp_path, agree):
    result = train_grpo(tmp_path, loss_type=loss_type, epsilon=0.2, epsilon_high=0.28)
    losses = TokenLosses(clipped_surrogate, low=0.2, high=0.28)
    agree(
        "GRPO",
        f"`loss_type` {loss_type}, ratios of tokens",
        our_steps(result, losses, aggregate),
        their_steps(result),
        note=NOTES.get(loss_type, ""),
    )
    assert losses.clipped == [False, True]


@pytest.mark.parametrize(("loss_type", "aggregate"), [("grpo", per_sequence), ("dapo", per_token)])
def test_ratio_of_the_completion(loss_type, aggregate, tmp_path, agree):
    result = train_grpo(
        tmp_path,
        loss_type=loss_type,
        importance_sampling_level="sequence",
        epsilon=3e-2,
        epsilon_high=4e-2,
    )
    losses = TokenLosses(sequence_ratio_surrogate, low=3e-2, high=4e-2, normalise=True)
    agree(
        "GSPO",
        f"`loss_type` {loss_type}, `importance_sampling_level` sequence",
        our_steps(result, losses, aggregate),
        their_steps(result),
    )
    assert losses.clipped == [False, True]


def test_cispo(tmp_path, agree):
    result = train_grpo(tmp_path, loss_type="cispo", epsilon_high=1.1)
    losses = TokenLosses(cispo, cap=1.1)
    agree(
        "CISPO",
        "`loss_type` cispo",
        our_steps(result, losses, per_token),
        their_steps(result),
        note="TRL's `epsilon_high` is the largest weight itself, not its distance from 1: "
        "its default of 0.2 caps every weight at 0.2",
    )
    assert losses.clipped == [False, True]


def test_dual_clip(tmp_path, agree):
    """TRL's `delta`; close above 1, so that it is met."""
    result = train_grpo(tmp_path, loss_type="grpo", delta=1.21)
    losses = TokenLosses(dual_clip_surrogate, low=0.2, high=0.2, cap=1.21)
    agree("dual clip", "`delta`", our_steps(result, losses, per_sequence), their_steps(result))
    assert losses.clipped == [False, True]


@pytest.mark.parametrize("corrected", [False, True])
def test_kl(corrected, tmp_path, agree):
    result = train_grpo(tmp_path, loss_type="grpo", beta=0.04, use_bias_correction_kl=corrected)
    surrogate = TokenLosses(clipped_surrogate, low=0.2, high=0.2)

    def losses(logprobs, rows):
        penalty = kl.k3(logprobs, rows.ref_logprobs)
        if corrected:
            penalty = kl.importance_corrected(penalty, logprobs, rows.old_logprobs)
        return surrogate(logprobs, rows) + 0.04 * penalty

    agree(
        "GRPO",
        f"k3 in the loss, {'times the ratio' if corrected else 'plain'}",
        our_steps(result, losses, per_sequence),
        their_steps(result),
        note="TRL's default, `use_bias_correction_kl`" if corrected else "",
    )
