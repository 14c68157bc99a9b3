"""Environment of a row: what it is, the rows that its episodes start from, and whether it can be replayed.

    python -m stages environment_own <environment> --by own --preset .. --from base --on own/<file>
    python -m stages environment_textarena <environment> --by textarena --preset .. --on prompts

Writes `environment.json` (`environments/definition`), and the rows of each split. Before that the
environment is checked (`environments/checks`): it starts alike twice with the same seed, and gives
the same observations and rewards for the same messages.
"""

import hashlib
from typing import Any

from stages import rows, stage
from stages.config import Params
from stages.environments import checks, definition
from stages.environments.definition import SPLITS, EnvironmentFile, EnvironmentPreset, Starts
from stages.loops.run import Run
from stages.models.prompting import PLACEHOLDER
from stages.records import lines
from stages.records.problems import Prompt
from stages.runtime import process
from stages.sources.catalogue import PreparationConfig

NUM_CHECKED = 4
"""Rows of each split that are checked."""


class Config(Params):
    """Keys of params.yaml that environment reads, and its preset."""

    seeds: list[int]
    data: PreparationConfig
    preset: EnvironmentPreset


CONFIGS = {name: Config for name, module in rows.ENTRY_POINTS.items() if module == "environment"}


def main(*words: str) -> None:
    """Write `environment.json` and the rows of each split."""
    stage.run(write, words, CONFIGS, per_seed=False)
