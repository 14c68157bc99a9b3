"""A recipe of recipes.yaml: which policies there are, and what each is made from.

A recipe holds, for each stage that has entries, a table of them; an entry is named
`<stage>/<entry>`. Pure: it reads no file.
"""

from collections.abc import Iterator

from pydantic import Field

from stages.params import Params
from stages.recipe_entries import (
    Dpo,
    Imported,
    JudgedPairs,
    Name,
    OnlineRl,
    OutcomeReward,
    Pairs,
    Pool,
    ProcessReward,
    Reference,
    RevisedPairs,
    RewardModel,
    Selection,
    Sft,
    Steps,
)
from stages.recipe_evaluations import (
    Aggregations,
    BestOfN,
    CheckpointEvaluation,
    Evaluation,
    Probing,
    ProcessEvaluation,
    Scores,
    Search,
)

PREPARE_DATA = "prepare_data"
POLICY_STAGES = ("train_sft", "train_dpo", "train_ppo", "train_grpo")
ENSEMBLES = "assemble_ensembles/ensembles"
"""What the words of ensembles start with."""


class Recipe(Params):
    """All entries of all stages; a stage without entries says `{}`."""

    train_sft: dict[Name, Sft]
    sample_candidates: dict[Name, Pool]
    select_demonstrations: dict[Name, Selection]
    label_preferences: dict[Name, Pairs]
    judge_preferences: dict[Name, JudgedPairs]
    revise_answers: dict[Name, RevisedPairs]
    import_preferences: dict[Name, Imported]
    train_reward_model: dict[Name, RewardModel]
    train_outcome_reward: dict[Name, OutcomeReward]
    label_steps: dict[Name, Steps]
    import_steps: dict[Name, Imported]
    train_process_reward: dict[Name, ProcessReward]
    evaluate_process_reward: dict[Name, ProcessEvaluation]
    compute_ref_logprobs: dict[Name, Reference]
    train_dpo: dict[Name, Dpo]
    train_ppo: dict[Name, OnlineRl]
    train_grpo: dict[Name, OnlineRl]
    score_candidates: dict[Name, Scores]
    choose_aggregation: dict[Name, Aggregations]
    search_solutions: dict[Name, Search]
    evaluate_best_of_n: dict[Name, BestOfN]
    evaluate_checkpoints: dict[Name, CheckpointEvaluation]
    evaluate_policy: dict[Name, Evaluation] = Field(min_length=1)
    probe_policy: dict[Name, Probing]
    baseline: Name
    """The entry of evaluate_policy which the others are compared with. A word, for DVC does not
    see the order of entries."""


TABLES = tuple(name for name in Recipe.model_fields if name != "baseline")
"""The stages that have entries."""


def maker(word: str) -> str:
    """The entry that makes a folder: `train_sft/sft` of `train_sft/sft/policy`."""
    stage, *rest = word.split("/")
    return stage if stage == PREPARE_DATA else "/".join([stage, *rest[:1]])


def evaluated(recipe: Recipe) -> dict[str, str]:
    """Each evaluated policy's name -> the entry that made it: the baseline, then by name.

    Nothing may depend on the order in which recipes.yaml lists them: DVC does not see it.
    """
    names = sorted(recipe.evaluate_policy, key=lambda name: (name != recipe.baseline, name))
    return {
        name: maker(recipe.sample_candidates[recipe.evaluate_policy[name].pool].policy)
        for name in names
    }


def rollout_entries(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """(name, entry) of every policy that was trained on rollouts of its own."""
    for stage in ("train_ppo", "train_grpo"):
        for name in sorted(getattr(recipe, stage)):
            yield name, f"{stage}/{name}"


def members(recipe: Recipe, ensemble: str) -> list[str]:
    """The entries of train_reward_model that are of the ensemble, by number."""
    found = [
        (entry.member, name)
        for name, entry in recipe.train_reward_model.items()
        if entry.ensemble == ensemble
    ]
    return [f"train_reward_model/{name}" for _, name in sorted(found)]
