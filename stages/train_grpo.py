"""`train: grpo`: see `stages/train_rl`.

python -m stages.train_grpo <policy> --train grpo --preset .. --from .. --on rewards/..
"""

from pydantic import model_validator

from stages import row_run, train_rl
from stages.engines.loading import EngineName
from stages.loops import method, rollout_rewards, training
from stages.loops.method import GroupMethod, GroupRlConfig
from stages.rewards import reward_file
from stages.runtime import process


class Config(training.TrainingConfig):
    """Keys of params.yaml that train_grpo reads, and its preset."""

    engine: EngineName
    """What samples."""
    grpo: GroupRlConfig
    preset: GroupMethod

    @model_validator(mode="after")
    def _the_preset_fits_the_sizes(self) -> "Config":
        method.check_sizes(self.grpo, self.preset)
        return self


def main(*words: str) -> None:
    """Write `model/` and `training/` of the row's policy."""
    with row_run.start("train", words, Config) as job:
        rollout_rewards.check_reward(
            job.config.grpo, job.config.preset, reward_file.read(job.row.source)
        )
        job.each_seed(train_rl.train, gpu=True)


if __name__ == "__main__":
    process.run(main)
