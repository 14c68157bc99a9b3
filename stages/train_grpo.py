"""`train: grpo`: see `stages/train_rl`.

python -m stages.train_grpo <policy> --train grpo --preset .. --from .. --on rewards/..
"""

from pydantic import model_validator

from stages import stage, train_rl
from stages.engines.loading import EngineName
from stages.loops import method, training
from stages.loops.method import GroupMethod, GroupRlConfig
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
    stage.run(train_rl.train, "train", words, Config, gpu=True, prepare=train_rl.check_reward)


if __name__ == "__main__":
    process.run(main)
