"""A reward by rules: named components, weighted and added (the preset: a `Composition`).

    python -m stages.reward_rule <reward> --by rule --preset .. --from base --on prompts

Writes what PPO and GRPO need to know of it (`reward.json`), and for each seed a copy of the model
that a component asks (`<seed>/model/`): a policy that judges is the row's `from`; a model that
scores completions or their steps is that of another reward, `on: rewards/<other>`; a function of
your own is `on: own/<file>`, `stages/rewards/own/<file>.py`.
"""

import hashlib
import os
import shutil
from pathlib import Path

from stages import row_run, rows
from stages.config import Params
from stages.rewards import reward_file
from stages.rewards.composition import Composition
from stages.rewards.reward_file import RewardFile
from stages.rows import BASE, Row
from stages.runtime import process


class Config(Params):
    """What reward_rule reads of params.yaml, and its preset."""

    seeds: list[int]
    preset: Composition


def main(*words: str) -> None:
    """Write `reward.json`, and `model/` of each seed where a model is asked."""
    with row_run.start("reward", words, Config) as job:
        content, models = describe(job.config, job.row)
        reward_file.write(job.folders[0], content)
        for seed, path in models.items():
            shutil.copytree(path, job.folders[0] / str(seed) / "model", copy_function=link)


def describe(config: Config, row: Row) -> tuple[RewardFile, dict[int, Path]]:
    """The reward, and the folder of the model that it asks, for each seed; empty: it asks none."""
    composition = config.preset
    reward_file.check_source(composition, row.on)
    kind, models, aggregate, own = None, {}, reward_file.MEAN, None
    if composition.needs_judge():
        if row.policy == BASE:
            raise ValueError(
                f"reward '{row.name}': its components ask a judge: expected `from: <policy>`, a "
                f"row of `policies`, found `from: {BASE}`"
            )
        kind, models = (
            "policy",
            {seed: rows.locate_policy(row.policy, seed) for seed in config.seeds},
        )
    elif composition.needs_model():
        other = reward_file.read(row.source)
        kind, aggregate = other.model, other.aggregate
        models = {seed: reward_file.model(row.source, seed) for seed in config.seeds}
    if "own" in composition.kinds():
        own = row.on.removeprefix(reward_file.OWN)
        reward_file.load_own(own)
    content = RewardFile(
        kind="rule",
        model=kind,
        composition=composition,
        aggregate=aggregate,
        own=own,
        own_digest=hashlib.sha256(row.source.read_bytes()).hexdigest() if own else None,
    )
    return content, models


def link(source: str, target: str) -> None:
    """A hard link to a model's file, or a copy on a file system that has none.

    Neither is ever written into: a stage replaces its outputs, and DVC makes them read-only.
    """
    try:
        # Followed first: DVC may have put a symbolic link to its cache there.
        os.link(Path(source).resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


if __name__ == "__main__":
    process.run(main)
