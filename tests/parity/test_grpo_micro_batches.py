"""GRPO's losses over an optimizer step of two micro-batches."""

import pytest
from parity.surrogates import (
    TokenLosses,
    our_steps,
    per_sequence,
    per_token,
    their_steps,
    train_grpo,
)

from stages.algorithms.losses.surrogates import clipped_surrogate

# The generation batch is the optimizer step's: two micro-batches, each learned from twice.
SPLIT = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "steps_per_generation": 2,
}


@pytest.mark.parametrize(("loss_type", "aggregate"), [("grpo", per_sequence), ("dapo", per_token)])
def test_our_one_normaliser_is_theirs(loss_type, aggregate, tmp_path, agree):
    result = train_grpo(tmp_path, loss_type=loss_type, **SPLIT)
    losses = TokenLosses(clipped_surrogate, low=0.2, high=0.2)
    assert [len(step.batches) for step in result.steps] == [2, 2]
    agree(
        "GRPO",
        f"`loss_type` {loss_type}, two micro-batches",
        our_steps(result, losses, aggregate),
        their_steps(result),
    )


def test_bnpo_depends_on_the_split(tmp_path, agree):
    result = train_grpo(tmp_path, loss_type="bnpo", **SPLIT)
    losses = TokenLosses(clipped_surrogate, low=0.2, high=0.2)
    agree(
        "GRPO",
        "`loss_type` bnpo, two micro-batches",
        our_steps(result, losses, per_token, mean_of_means=True),
        their_steps(result),
        note="TRL takes the mean of the micro-batches' token means; "
        "ours is `token_mean` over the step, whatever the split",
    )
    whole, theirs = our_steps(result, losses, per_token)[1], result.steps[1].computed
    assert abs(whole.loss - theirs.loss) > 1e-3 * abs(theirs.loss)
