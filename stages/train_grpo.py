"""Reinforcement learning with groups of completions: GRPO and its relatives.

    python -m stages.train_grpo <policy> --train grpo --preset .. --from .. --on rewards/..

Which of them is the preset: Shao et al., "DeepSeekMath" (2024), https://arxiv.org/abs/2402.03300,
is `grpo_deepseekmath`. Reads prompts, the policy `from`, which is also the reference, and a reward;
writes a policy of each seed and every rollout that it learned from. From the base model with the
rule reward this is R1-Zero's recipe (Guo et al. 2025, https://arxiv.org/abs/2501.12948). The answer
checker's verdict is logged, whatever the reward.
"""

from functools import partial
from pathlib import Path
from typing import Any

from pydantic import model_validator

from stages import row_run
from stages.engines import loading
from stages.engines.loading import EngineName
from stages.loops import group_rl, record, rl_loop, rl_run, training
from stages.loops.group_rl import GroupRlConfig, GroupRlPreset
from stages.rewards import reward_file
from stages.rows import Row
from stages.runtime import process
from stages.runtime.seeds import SeedRun
from stages.seeding import derive


class Config(training.TrainingConfig):
    """What train_grpo reads of params.yaml, and its preset."""

    engine: EngineName
    """Who samples; a `correction` that is `auto` depends on it."""
    grpo: GroupRlConfig
    preset: GroupRlPreset

    @model_validator(mode="after")
    def _the_preset_fits_the_sizes(self) -> "Config":
        group_rl.check(self.grpo, self.preset)
        return self


def main(*words: str) -> None:
    """Write `model/` and `training/` of the row's policy."""
    with row_run.start("train", words, Config) as job:
        config, reward = job.config, reward_file.read(job.row.source)
        group_rl.check_reward(config.grpo, config.preset, reward)
        job.each_seed(train, gpu=True)


def train(config: Config, row: Row, saved: Path, logged: Path, run: SeedRun) -> dict[str, Any]:
    """The policy of one seed; its metrics."""
    settings, preset, seed = config.grpo, config.preset, derive(run.seed, "train_grpo")
    sampler_of = partial(loading.of_policy, config.engine, 1)
    actor, task, tokenizer = rl_run.begin(row, run.seed, seed, config, settings, sampler_of)
    schedule = rl_loop.schedule(task, settings, preset, seed)
    state = record.resume(run)
    steps = group_rl.train(actor, task, schedule, settings, preset, seed, state)
    return rl_run.finish(actor, tokenizer, steps, state, settings, preset, row, saved, logged, run)


if __name__ == "__main__":
    process.run(main)
