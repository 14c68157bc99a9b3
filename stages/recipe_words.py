"""What each word of a recipe's entries may name."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from stages.models.start import BASE
from stages.recipe import ENSEMBLES, POLICY_STAGES, PREPARE_DATA, Recipe
from stages.rewards import own_reward

NO_MODEL = "no_model"
NO_SCORES = "no_scores"
NO_CHOICE = "no_choice"
OWN = Path(__file__).parent / "rewards/own"
"""Users' own rewards; files with names that Python cannot import are none."""
PRESETS = {
    "train_sft": "sft",
    "train_dpo": "preference",
    "train_ppo": "ppo",
    "train_grpo": "group_rl",
    "search_solutions": "search",
}
"""Stage -> the section whose entries are its presets."""
REWARDS = "rewards"
"""The section whose entries are what online methods maximise."""
ONLINE_STAGES = ("train_ppo", "train_grpo")
PAIR_STAGES = ("label_preferences", "judge_preferences", "revise_answers", "import_preferences")
REWARD_MODEL_STAGES = ("train_reward_model", "train_outcome_reward")
RUN_STAGES = ("train_dpo", "train_ppo", "train_grpo")
"""Those that write checkpoints along the way."""
CHOSEN_ON = ("dev", "preference")
"""Splits on which a checkpoint, or n, may be chosen: what is reported is measured on `test`."""
STEP_STAGES = ("label_steps", "import_steps")


def known(recipe: Recipe, content: dict[str, Any]) -> dict[tuple[str, str], Collection[str]]:
    """(stage, word) -> what it may be; ("", word) for stages that are not listed by name.

    A word that is not here is free.

    Args:
        recipe: whose entries they name.
        content: params.yaml, whose presets they name.
    """
    policies = [f"{entry}/policy" for entry in folders(recipe, POLICY_STAGES)]
    rewards = [f"{entry}/reward_model" for entry in folders(recipe, ["train_reward_model"])]
    outcomes = [f"{entry}/reward_model" for entry in folders(recipe, ["train_outcome_reward"])]
    ensembles = sorted(
        {f"{ENSEMBLES}/{one.ensemble}" for one in recipe.train_reward_model.values()}
    )
    scalars = [*rewards, *outcomes, *ensembles]
    scores = [f"{entry}/scores" for entry in folders(recipe, ["score_candidates"])]
    choices = [f"{entry}/choice" for entry in folders(recipe, ["choose_aggregation"])]
    scalars = [f"{entry}/reward_model" for entry in folders(recipe, REWARD_MODEL_STAGES)]
    singles, scalars = list(scalars), [*scalars, *ensembles]
    processes = [f"{entry}/process_model" for entry in folders(recipe, ["train_process_reward"])]
    pairs = list(folders(recipe, PAIR_STAGES))
    steps = list(folders(recipe, STEP_STAGES))
    rl_scorers = [*scalars, *processes, *policies, NO_MODEL]
    own = [path.stem for path in OWN.glob("*.py") if own_reward.WORD.fullmatch(path.stem)]
    allowed: dict[tuple[str, str], Collection[str]] = {
        ("", "start"): policies,
        ("", "pool"): recipe.sample_candidates,
        ("", "train"): recipe.sample_candidates,
        ("", "heldout"): recipe.sample_candidates,
        ("", "pairs"): pairs,
        ("", "steps"): steps,
        ("", "policy"): policies,
        ("", "reference"): recipe.compute_ref_logprobs,
        ("score_candidates", "split"): section(content, "sample_candidates"),
        ("score_candidates", "ensemble"): [*ensembles, NO_MODEL],
        ("score_candidates", "reward_model"): [*rewards, NO_MODEL],
        ("score_candidates", "outcome"): [*outcomes, NO_MODEL],
        ("score_candidates", "process"): [*processes, NO_MODEL],
        ("choose_aggregation", "scores"): scores,
        ("evaluate_policy", "scores"): [*scores, NO_SCORES],
        ("evaluate_policy", "aggregation"): [*choices, NO_CHOICE],
        ("train_sft", "start"): [BASE, *policies],
        ("train_grpo", "start"): [BASE, *policies],
        ("train_sft", "demonstrations"): [
            PREPARE_DATA,
            *folders(recipe, ["select_demonstrations", "revise_answers"]),
        ],
        ("sample_candidates", "policy"): [BASE, *policies],
        ("sample_candidates", "split"): section(content, "sample_candidates"),
        ("search_solutions", "process"): processes,
        ("search_solutions", "split"): section(content, "sample_candidates"),
        ("select_demonstrations", "split"): section(content, "sample_candidates"),
        ("label_steps", "split"): section(content, "label_steps"),
        ("judge_preferences", "judge"): [*policies, NO_MODEL],
        ("import_preferences", "source"): section(content, "import_preferences"),
        ("import_steps", "source"): section(content, "import_steps"),
        ("train_reward_model", "heldout"): pairs,
        ("train_process_reward", "heldout"): steps,
        ("evaluate_process_reward", "model"): processes,
        ("evaluate_process_reward", "dev"): steps,
        ("evaluate_process_reward", "test"): steps,
    }
    allowed |= {
        ("probe_policy", "policy"): [BASE, *policies],
        ("probe_policy", "reward_model"): [*scalars, NO_MODEL],
        ("probe_policy", "process"): [*processes, NO_MODEL],
        ("probe_policy", "judge"): [*policies, NO_MODEL],
    }
    for stage in ("evaluate_best_of_n", "evaluate_checkpoints"):
        allowed[stage, "reward_model"] = [*singles, NO_MODEL]
        allowed[stage, "ensemble"] = [*ensembles, NO_MODEL]
        allowed[stage, "split"] = CHOSEN_ON
    allowed["evaluate_best_of_n", "policy"] = [BASE, *policies]
    allowed["evaluate_checkpoints", "run"] = list(folders(recipe, RUN_STAGES))
    allowed["evaluate_checkpoints", "reference"] = [BASE, *policies]
    for stage in ONLINE_STAGES:
        allowed[stage, "reward"] = section(content, REWARDS)
        allowed[stage, "scorer"] = rl_scorers
        allowed[stage, "own"] = own
    for stage, presets in PRESETS.items():
        allowed[stage, "preset"] = section(content, presets)
    return allowed


def folders(recipe: Recipe, stages: Collection[str]) -> Iterator[str]:
    """`<stage>/<entry>` for every entry of these stages."""
    for stage in stages:
        for name in table(recipe, stage):
            yield f"{stage}/{name}"


def table(recipe: Recipe, stage: str) -> dict[str, Any]:
    """The entries of a stage."""
    return getattr(recipe, stage)


def section(content: dict[str, Any], name: str) -> dict[str, Any]:
    """A section of params.yaml; empty where it is none, which is told elsewhere."""
    found = content.get(name)
    return found if isinstance(found, dict) else {}
