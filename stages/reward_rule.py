"""Reward by rules: a weighted sum of named components (the preset: a `Composition`).

    python -m stages reward_rule <reward> --by rule --preset .. --from base --on prompts

Writes `reward.json`, from which PPO and GRPO load the reward, and for each seed a copy of the model
that a component uses (`<seed>/model/`): a policy that judges is the row's `from`; a model that
scores completions or their steps is that of another reward, `on: rewards/<other>`. Your function is
`on: own/<file>`, `stages/rewards/own/<file>.py`.
"""

import hashlib
import shutil
from pathlib import Path

from stages import rows, stage
from stages.config import Params
from stages.loops.run import Run
from stages.rewards import reward_file
from stages.rewards.composition import Composition
from stages.rewards.reward_file import RewardFile
from stages.rows import BASE, Row
from stages.runtime import outputs


class Config(Params):
    """Keys of params.yaml that reward_rule reads, and its preset."""

    seeds: list[int]
    preset: Composition


def main(*words: str) -> None:
    """Write `reward.json`, and `model/` of each seed if a component uses a model."""
    stage.run(write_reward, words, Config, per_seed=False)


def write_reward(run: Run) -> None:
    """Write the reward, and link the files of its model."""
    content, models = describe(run.config, run.row)
    reward_file.write_reward(run.output, content)
    for seed, path in models.items():
        target = run.output / str(seed) / "model"
        shutil.copytree(path, target, copy_function=outputs.link_or_copy)


def describe(config: Config, row: Row) -> tuple[RewardFile, dict[int, Path]]:
    """Reward, and the folder of its model for each seed; empty if it uses no model."""
    composition = config.preset
    reward_file.check_source(composition, row.on)
    kind, models, aggregate, own_file = None, {}, reward_file.MEAN, None
    if composition.needs_judge():
        if row.policy == BASE:
            raise ValueError(
                f"reward '{row.name}': its components ask a judge: expected `from: <policy>`, a "
                f"row of `policies`, found `from: {BASE}`"
            )
        kind = "policy"
        models = {seed: rows.locate_policy(row.policy, seed) for seed in config.seeds}
    elif composition.needs_model():
        scored_reward = reward_file.read_reward(row.source)
        kind, aggregate = scored_reward.model, scored_reward.aggregate
        models = {seed: reward_file.model_path(row.source, seed) for seed in config.seeds}
    if "own" in composition.kinds():
        own_file = row.on.removeprefix(reward_file.OWN)
        reward_file.load_own_function(own_file)
    digest = hashlib.sha256(row.source.read_bytes()).hexdigest() if own_file else None
    content = RewardFile(kind="rule", model=kind, composition=composition, aggregate=aggregate,
                         own=own_file, own_digest=digest)  # fmt: skip
    return content, models
