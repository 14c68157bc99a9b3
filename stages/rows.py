"""Command line of a stage run: a row of a table of params.yaml, and the folders that it names.

dvc.yaml has `python -m stages train_${item.train} ${key} ${item}`, which DVC expands to
`train_grpo grpo --train grpo --preset grpo_deepseekmath --from sft --on rewards/rule`: the entry
point, the row's name, then its keys and values. Every path follows from them:

    data/policies/<policy>/model/<seed>/      a policy; `base` has one folder for all seeds
    data/pools/<pool>/<seed>/                 completions to label or to learn from
    data/pairs/<pairs>/<seed>/                pairs, or demonstrations, made of them; by teacher
                                              also model/, the teacher
    data/steps/<steps>/<seed>/                solutions whose steps are labelled
    data/rewards/<reward>/                    reward.json, and the models in <seed>/
    data/environments/<environment>/          environment.json, and rows that episodes start from
    data/episodes/<episodes>/<seed>/          episodes of a policy, or a script, in one
    data/samples/<policy>/<seed>/             completions of the dev and test problems
    data/evaluations/<policy>/<seed>/         accuracies, votes and best-of-n of the samples
"""

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

DATA = Path("data")
PROMPTS = DATA / "prompts"
BASE = "base"
"""Policy that no row trains: the model of section `model`, with its tokenizer."""
STAGES = {
    "policies": "train", "pools": "pool", "pairs": "label", "steps": "label_steps",
    "rewards": "reward", "environments": "environment", "episodes": "play",
}  # fmt: skip
"""Table -> the stage of dvc.yaml that makes its rows."""
TABLES = tuple(STAGES)
OPTION = re.compile(r"--[a-z][a-z_.]*")
ENTRY_POINTS = {
    "train_sft": "train_sft",
    "train_dpo": "train_dpo",
    "train_ppo": "train_rl",
    "train_grpo": "train_rl",
    "pool": "sample",
    "label_verifier": "label_verifier",
    "label_selection": "label_verifier",
    "label_judge": "label_feedback",
    "label_revision": "label_feedback",
    "label_people": "label_people",
    "label_episodes": "label_episodes",
    "label_own": "label_own",
    "label_teacher": "label_teacher",
    "steps_people": "label_people",
    "steps_completions": "steps_completions",
    "reward_rule": "reward_rule",
    "reward_preference": "reward_model",
    "reward_outcome": "reward_model",
    "reward_process": "reward_model",
    "environment_own": "environment",
    "environment_reasoning_gym": "environment",
    "environment_skyrl_gym": "environment",
    "environment_textarena": "environment",
    "environment_trl": "environment",
    "environment_tinker": "environment",
    "environment_aviary": "environment",
    "play_policy": "play",
    "play_script": "play",
    "sample": "sample",
    "evaluate": "evaluate",
}
"""Entry point of a row, as in dvc.yaml -> its module under stages/. The command of `by: own/mine`
begins with `label_own/mine`: so it depends on `data/code/label_own/mine.json`, the code of the
entry point and of the user's file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Row of a table of params.yaml."""

    name: str
    by: str = ""
    """Kind of the stage, as in `train_<by>` or `label_<by>`, or `own/<file>`; empty for a pool."""
    preset: str = ""
    """Entry of stages/presets.yaml; for a pool or episodes the split of their problems."""
    policy: str = BASE
    """Key `from` of the table: the initial policy, or the one that samples, labels or judges."""
    on: str = ""
    """Folder under data/ to learn from or to label; empty for a pool."""
    files: tuple[str, ...] = ()
    """Files that the code of a user's reward, environment or labeller opens."""
    control: str = ""
    """Key of a control, a policy: what its training must not change (`report/controls`)."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Values that replace those of a policy's section of params.yaml; for episodes `num_episodes`
    and `temperature`."""

    @property
    def source(self) -> Path:
        """Folder that `on` names."""
        return DATA / self.on


def parse_row(words: Sequence[str]) -> Row:
    """Row of a command line: `<name> --by .. --preset .. --from .. --on ..`.

    A row of `policies` has `--train` in place of `--by`, and may have keys of the section that it
    names (`--num_steps 8 --optim.learning_rate 1e-4`); pools and episodes have `--split` in place
    of `--preset`; episodes may have `--num_episodes` and `--temperature`; `sample` and `evaluate`
    have only a policy's name.
    """
    parser = argparse.ArgumentParser(prog="python -m stages <entry point>", allow_abbrev=False)
    parser.add_argument("name")
    parser.add_argument("--by", "--train", dest="by", default="")
    parser.add_argument("--preset", "--split", dest="preset", default="")
    parser.add_argument("--from", dest="policy", default=BASE)
    parser.add_argument("--on", default="")
    parser.add_argument("--files", nargs="*", default=())
    parser.add_argument("--control", default="")
    values, others = parser.parse_known_args(words)
    values.files = tuple(values.files)
    if len(others) % 2 or not all(OPTION.fullmatch(word) for word in others[::2]):
        parser.error(f"expected keys with values after the row's words, found {' '.join(others)}")
    overrides: dict[str, Any] = {}
    for option, value in zip(others[::2], others[1::2], strict=True):
        *path, name = option.removeprefix("--").split(".")
        place = overrides
        for key in path:
            place = place.setdefault(key, {})
        place[name] = YAML(typ="safe").load(value)
    return Row(**vars(values), overrides=overrides)


def locate_policy(policy: str, seed: int) -> Path:
    """Folder of a seed's policy, as transformers saves it."""
    folder = DATA / "policies" / policy / "model"
    return folder if policy == BASE else folder / str(seed)


def seed_folder(folder: Path, seed: int) -> Path:
    """Subfolder of an input or output that belongs to a seed; without one, the folder."""
    of_seed = folder / str(seed)
    return of_seed if of_seed.is_dir() else folder
