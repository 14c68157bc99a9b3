"""Proximal policy optimisation of a policy.

    python -m stages.train_ppo <policy> --train ppo --preset .. --from .. --on rewards/..

Schulman et al., "Proximal Policy Optimization Algorithms" (2017), applied as in Ouyang et al.,
"Training language models to follow instructions" (2022), step 3, is the preset `ppo_instructgpt`.
Reads prompts, the policy `from`, which is also the reference, and a reward, whose model the value
model may start from; writes a policy of each seed and every rollout that it learned from.
Departure: no pretraining mix. The answer checker's verdict is logged, whatever the reward.
"""

from functools import partial
from pathlib import Path
from typing import Any

from pydantic import model_validator

from stages import row_run
from stages.engines import loading
from stages.engines.loading import EngineName
from stages.loops import critic, ppo, record, rl_loop, rl_run, training
from stages.loops.ppo import PpoConfig, PpoPreset
from stages.models import start as models_start
from stages.rewards import reward_file
from stages.rows import Row
from stages.runtime import process
from stages.runtime.seeds import SeedRun
from stages.seeding import derive


class Config(training.TrainingConfig):
    """What train_ppo reads of params.yaml, and its preset."""

    engine: EngineName
    """Who samples; a `correction` that is `auto` depends on it."""
    ppo: PpoConfig
    preset: PpoPreset

    @model_validator(mode="after")
    def _the_preset_fits_the_sizes(self) -> "Config":
        rl_loop.check(self.ppo, self.preset)
        return self


def main(*words: str) -> None:
    """Write `model/` and `training/` of the row's policy."""
    with row_run.start("train", words, Config) as job:
        config, reward = job.config, reward_file.read(job.row.source)
        ppo.check_reward(config.ppo, config.preset, reward)
        job.each_seed(train, gpu=True)


def train(config: Config, row: Row, saved: Path, logged: Path, run: SeedRun) -> dict[str, Any]:
    """The policy of one seed; its metrics."""
    settings, preset, seed = config.ppo, config.preset, derive(run.seed, "train_ppo")
    sampler_of = partial(loading.of_policy, config.engine, 2)  # the policy and the value model
    actor, task, tokenizer = rl_run.begin(row, run.seed, seed, config, settings, sampler_of)
    source = partial(models_start.folder, row.policy, run.seed, config.model)
    reward_model = reward_file.model(row.source, run.seed)
    value = critic.load(preset.value, actor, source, reward_model, config.lora, seed)
    schedule = rl_loop.schedule(task, settings, preset, seed)
    state = record.resume(run)
    steps = ppo.train(actor, value, task, schedule, settings, preset, seed, state)
    return rl_run.finish(
        actor, tokenizer, steps, state, settings, preset, row, saved, logged, run, value
    )


if __name__ == "__main__":
    process.run(main)
