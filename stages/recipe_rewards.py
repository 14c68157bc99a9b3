"""Do entries name the models and functions that their reward or judge needs, and nothing else?"""

from collections.abc import Iterator
from typing import Any

import pydantic

from stages.recipe import POLICY_STAGES, Recipe
from stages.recipe_entries import OnlineRl
from stages.recipe_words import NO_MODEL, ONLINE_STAGES, PRESETS, REWARDS, section, table
from stages.rewards.composition_config import Composition

NO_OWN = "none"
Problems = Iterator[tuple[str, str]]
"""(place, what is wrong there)."""


def problems(recipe: Recipe, content: dict[str, Any]) -> Problems:
    """Models and functions that are missing, or that nothing reads."""
    for stage in ONLINE_STAGES:
        for name, entry in table(recipe, stage).items():
            try:
                reward = Composition.model_validate(section(content, REWARDS).get(entry.reward))
            except pydantic.ValidationError:
                continue  # told by check_params, or as a word that names nothing
            preset = section(section(content, PRESETS[stage]), entry.preset)
            by_step = section(preset, "advantage").get("kind") == "step_zscore"
            found = (
                *scorer(entry, reward, value_init(preset)),
                *steps(entry, reward, by_step=by_step),
                *own(entry, reward),
            )
            yield from ((f"{stage}.{name}.{word}", what) for word, what in found)


def scorer(entry: OnlineRl, reward: Composition, init: str | None) -> Problems:
    """The model: what reads it, and of which kind it is."""
    maker, _, made = entry.scorer.partition("/")
    is_policy, is_process = maker in POLICY_STAGES, made.endswith("/process_model")
    from_it = init == "reward_model"
    if entry.scorer == NO_MODEL:
        if reward.needs_model():
            yield "scorer", f"the reward '{entry.reward}' asks a model: name one"
        if from_it:
            what = f"the value model of the preset '{entry.preset}' starts from a reward model"
            yield "scorer", f"{what}: name one, or take value.init: policy"
        return
    if not reward.needs_model() and not from_it:
        yield "scorer", f"nothing reads '{entry.scorer}' here: write {NO_MODEL}"
    if "scorer" in reward.kinds() and is_policy:
        what = f"the reward '{entry.reward}' asks a reward model or a process model for scores"
        yield "scorer", f"{what}, and '{entry.scorer}' is a policy"
    if reward.needs_judge() and not is_policy:
        what = f"the reward '{entry.reward}' asks a policy to compare completions"
        yield "scorer", f"{what}, and '{entry.scorer}' is none"
    if "process" in reward.kinds() and not is_process:
        what = f"the reward '{entry.reward}' asks a process model for the scores of steps"
        yield "scorer", f"{what}, and '{entry.scorer}' is none"
    if from_it and (is_policy or is_process):
        what = f"the value model of the preset '{entry.preset}' starts from a reward model"
        yield "scorer", f"{what}, and '{entry.scorer}' is none: take value.init: policy"


def steps(entry: OnlineRl, reward: Composition, *, by_step: bool) -> Problems:
    """Of a component `scorer`: a process model gives step rewards, other models give none."""
    scorers = [name for name, part in reward.components.items() if part.value.kind == "scorer"]
    is_process = entry.scorer.endswith("/process_model")
    if is_process and any(reward.rescales(name) for name in scorers):
        what = f"the reward '{entry.reward}' normalises the scores of '{entry.scorer}', which are"
        yield "scorer", f"{what} of steps and paid as they are: take a reward that does not"
    if is_process or entry.scorer == NO_MODEL:
        return
    if by_step and scorers and "process" not in reward.kinds():
        what = f"the preset '{entry.preset}' compares rewards of steps, and '{entry.scorer}' gives"
        yield "scorer", f"{what} none: name a process model"


def own(entry: OnlineRl, reward: Composition) -> Problems:
    """The function: whether it is named where it is asked, and only there."""
    if reward.needs_own() and entry.own == NO_OWN:
        what = f"the reward '{entry.reward}' asks your own function: name its file in"
        yield "own", f"{what} stages/rewards/own/"
    if not reward.needs_own() and entry.own != NO_OWN:
        yield "own", f"the reward '{entry.reward}' does not ask '{entry.own}': write {NO_OWN}"


def judges(recipe: Recipe, content: dict[str, Any]) -> Problems:
    """Judges of pairs that are not of the kind that the section judge_preferences names."""
    kind = section(section(content, "judge_preferences"), "judge").get("kind")
    for name, entry in recipe.judge_preferences.items():
        place = f"judge_preferences.{name}.judge"
        if kind == "policy" and entry.judge == NO_MODEL:
            yield place, "judge_preferences.judge has kind: policy: name one, or kind: endpoint"
        if kind == "endpoint" and entry.judge != NO_MODEL:
            what = "judge_preferences.judge has kind: endpoint, which asks no model here"
            yield place, f"{what}: write {NO_MODEL} in place of '{entry.judge}', or kind: policy"


def value_init(preset: dict[str, Any]) -> str | None:
    """What PPO's value model starts from; None of a method without one."""
    return section(preset, "value").get("init")
