"""Definition of a reward: `reward.json` in its folder, or a user's function in a file.

    data/rewards/<name>/reward.json        this
    data/rewards/<name>/<seed>/model/      the model that it calls, if any; of an ensemble
                                           model/0, model/1, ...
    stages/rewards/own/<word>.py           a function, which a row names: `on: own/<word>`

PPO and GRPO need only that folder to build the reward; evaluation finds reward models there.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from stages import own_modules
from stages.algorithms import ensemble
from stages.algorithms.ensemble import Rewards, Scores
from stages.config import Params, spell_out_kind
from stages.records.problems import Prompt
from stages.rewards.composition import Composition

NAME = "reward.json"
OWN, OTHER = "own/", "rewards/"
"""Prefix of `on` of a rule that calls a user's function, or another reward's model."""


class PlainAggregate(Params):
    """Mean or minimum of the members' scores."""

    kind: Literal["mean", "min"]

    def __call__(self, scores: Scores) -> Rewards:
        """One score per completion."""
        return {"mean": ensemble.mean, "min": ensemble.minimum}[self.kind](scores)


class PenalisedAggregate(Params):
    """Mean of the members' scores minus `k` times their spread."""

    kind: Literal["mean_minus_std", "mean_minus_variance"]
    k: float = Field(ge=0)

    def __call__(self, scores: Scores) -> Rewards:
        """One score per completion."""
        if self.kind == "mean_minus_std":
            return ensemble.mean_minus_std(scores, self.k)
        return ensemble.mean_minus_variance(scores, self.k)


Aggregate = Annotated[
    PlainAggregate | PenalisedAggregate,
    Field(discriminator="kind"),
    BeforeValidator(spell_out_kind),
]
"""Aggregation of the scores of an ensemble's members; a single model's scores are not changed."""
MEAN = PlainAggregate(kind="mean")


class RewardFile(Params):
    """Definition of a reward, without its model's weights."""

    kind: Literal["rule", "preference", "outcome", "process"]
    """The stage that made it: `reward_<kind>`."""
    model: Literal["reward", "process", "policy"] | None
    """Content of `<seed>/model/`: a model (or an ensemble) that scores completions, one that scores
    their steps, or a policy as a judge; null: no model is called."""
    composition: Composition
    """Components of the reward; for a reward model one component, of kind scorer or process."""
    aggregate: Aggregate
    own: str | None
    """The user's file in stages/rewards/own/, without `.py`; null: none."""
    own_digest: str | None
    """Digest of that file and its imports: an edit changes reward.json, so trainings with it
    rerun."""

    @model_validator(mode="after")
    def _has_what_it_asks(self) -> "RewardFile":
        parts = self.composition
        expected = {"policy"} if parts.needs_judge() else {"reward", "process"}
        if parts.needs_model() and self.model not in expected:
            raise ValueError(
                f"components of kind {sorted(parts.kinds())} call a model: expected model "
                f"{' or '.join(sorted(expected))}, found {self.model}"
            )
        if "process" in parts.kinds() and self.model != "process":
            raise ValueError(
                f"a component of kind process needs scores of steps: expected model process, "
                f"found {self.model}. Name a reward of kind process: `on: rewards/<process>`."
            )
        if "own" in parts.kinds() and self.own is None:
            raise ValueError(
                "a component of kind own calls a function of yours: name its file, as `on: own/..`"
            )
        return self


def model_reward_file(
    kind: Literal["preference", "outcome", "process"], aggregate: Aggregate | None = None
) -> RewardFile:
    """Reward of a reward model: a score of each completion, or of each of its steps."""
    name, model, value = "score", "reward", {"kind": "scorer"}
    if kind == "process":
        name, model, value = "steps", "process", {"kind": "process", "credit": "sum", "zero": 0.5}
    part = {"value": value, "weight": 1.0, "cap": None, "normalise": {"kind": "none"}}
    composition = Composition.model_validate({"components": {name: part}, "combine": "sum"})
    return RewardFile(kind=kind, model=model, composition=composition, aggregate=aggregate or MEAN,
                      own=None, own_digest=None)  # fmt: skip


def check_source(composition: Composition, on: str) -> None:
    """Raise a ValueError if a rule's `on` is not what its components call, or else `prompts`."""
    scored = bool(composition.kinds() & {"scorer", "process"})
    for prefix, needed in {OWN: "own" in composition.kinds(), OTHER: scored}.items():
        if needed != on.startswith(prefix):
            raise ValueError(
                f"components of kind {', '.join(sorted(composition.kinds()))}: expected `on: "
                f"{f'{prefix}<name>' if needed else 'prompts'}`, found `on: {ascii(on)[1:-1]:.100}`"
            )


def write_reward(folder: Path, content: RewardFile) -> None:
    """Write `reward.json` into a reward's folder."""
    (folder / NAME).write_text(content.model_dump_json(indent=2) + "\n", encoding="utf-8")


def read_reward(folder: Path) -> RewardFile:
    """Definition of the reward in the folder `data/rewards/<name>`."""
    path = folder / NAME
    if not path.is_file():
        raise ValueError(
            f"expected a reward in {folder}, found no {NAME}: PPO and GRPO learn `on: "
            f"rewards/<name>`, a row of the table `rewards`"
        )
    return RewardFile.model_validate_json(path.read_text(encoding="utf-8"))


def read_model_rewards(rewards: Path) -> dict[str, RewardFile]:
    """Reward models by name, which can choose among samples."""
    rewards_by_name = {folder.name: read_reward(folder) for folder in sorted(rewards.glob("[!.]*"))}
    return {name: reward for name, reward in rewards_by_name.items() if reward.kind != "rule"}


def model_path(folder: Path, seed: int) -> Path:
    """Folder of a seed's model, or of the folders of an ensemble's members."""
    return folder / str(seed) / "model"


def load_own_function(word: str) -> Callable[[Prompt, str], float]:
    """The function `reward` of stages/rewards/own/<word>.py."""
    return own_modules.load_own_function("rewards", word, "reward", ("prompt", "completion"))
