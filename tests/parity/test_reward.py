"""The reward model against TRL's `RewardTrainer`."""

import pytest
from parity import ours, reference
from parity.characters import tokenizer
from parity.reference import Computed
from tiny_checkpoints import PAD, compute
from tiny_rollouts import OPTIM, make_pairs

from stages.loops import reward
from stages.models.scalar_head import ScalarHead
from stages.optim import OptimConfig

PAIRS = make_pairs(4)


@pytest.mark.parametrize("centring", [0.0, 0.01])
def test_one_step_of_the_reward_model(centring, tmp_path, monkeypatch, agree):
    from datasets import Dataset
    from trl import RewardConfig, RewardTrainer

    trainer = RewardTrainer(
        model=reference.scalar_model(0),
        args=RewardConfig(
            **reference.arguments(
                tmp_path,
                per_device_train_batch_size=4,
                max_steps=1,
                center_rewards_coefficient=centring or None,
            )
        ),
        train_dataset=Dataset.from_list(
            [
                {
                    "chosen_ids": [*pair.prompt_ids, *pair.chosen_ids],
                    "rejected_ids": [*pair.prompt_ids, *pair.rejected_ids],
                }
                for pair in PAIRS
            ]
        ),
        processing_class=tokenizer(),
    )
    (step,) = reference.run(trainer)

    result = reference.scalar_model(0)
    seen = ours.watch(monkeypatch, reward, result)
    config = reward.RewardConfig(
        num_epochs=1,
        batch_size=4,
        centring=centring,
        margin=0.0,
        optim=OptimConfig(**OPTIM),
    )
    (taken,) = reward.train(ScalarHead(result, compute(), PAD), PAIRS, [range(4)], config)
    agree(
        "reward model",
        "`loops/reward.train`, one step" + (f", centring {centring}" if centring else ""),
        Computed(loss=taken.metrics["loss/bradley_terry"], gradients=seen[0]),
        step.computed,
    )
