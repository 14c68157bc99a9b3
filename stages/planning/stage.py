"""The stages of a plan: rows, the entry point that makes each, and what that reads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stages import plan_checks, tables
from stages.config import PRESET, override_section, pick_sections
from stages.environments.definition import EnvironmentPreset
from stages.records.problems import Demonstration
from stages.rewards.composition import Composition
from stages.rows import STAGES
from stages.tables import (
    ENVIRONMENTS,
    EPISODES,
    PAIRS,
    POLICIES,
    POOLS,
    REWARDS,
    STEPS,
    Tables,
)

Content = Mapping[str, Any]
OF_POLICIES = ("sample", "evaluate")
"""Stages that each policy has besides."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Data:
    """How many rows there are, and how many tokens they have."""

    prompts: Mapping[str, int]
    """By split."""
    demonstrations: int
    prompt: float
    """Mean tokens."""
    completion: float
    completion_lines: float
    """Mean lines of a completion."""
    longest: tuple[int, int]
    """Tokens of a prompt and of a completion."""
    example: Demonstration | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What stages read: params.yaml and presets.yaml, every `auto` replaced; all rows; the data."""

    content: Content
    presets: Content
    rows: Tables
    data: Data


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """A row that is made, or a policy that is sampled from or evaluated."""

    name: str
    """As DVC has it: `train@sft`."""
    entry_point: str
    words: Mapping[str, Any]
    config: Any
    """The entry point's `Config`."""


def list_stages(plan: Plan) -> Iterator[Stage]:
    """Every stage in which a model may compute; rows that are wrong are left out."""
    entry_points = plan_checks.load_entry_points()
    places = [
        (f"{STAGES[place.table]}@{place.name}", place.entry_point, place.words)
        for place in tables.list_rows(plan.rows)
    ]
    for kind in OF_POLICIES:
        places += [(f"{kind}@{name}", kind, {}) for name in plan.rows[POLICIES]]
    for name, entry_point, words in places:
        config, preset = entry_points[entry_point], plan.presets.get(words.get(PRESET, ""))
        _, sizes = tables.split_words(POLICIES, dict(words)) if "train" in words else ({}, {})
        content = override_section(plan.content, words["train"], sizes) if sizes else plan.content
        picked = pick_sections(config, {**content, PRESET: preset})
        validated = config.model_validate(picked)
        yield Stage(name=name, entry_point=entry_point, words=words, config=validated)


def is_remote(stage: Stage) -> bool:
    """Whether a judge behind an endpoint is asked, so that no model computes here."""
    judge = getattr(getattr(stage.config, "preset", None), "judge", None)
    return getattr(judge, "kind", "") == "endpoint"


def max_lengths(stage: Stage, plan: Plan) -> tuple[int, int]:
    """Tokens of a prompt and of a completion, as long as the stage may meet them."""
    config, prompt = stage.config, plan.data.longest[0]
    if (environment := find_environment(stage, plan)) is not None:
        # Of a transcript the length of all of it is limited.
        prompt = min(prompt, environment.max_tokens - 1)
        return prompt, environment.max_tokens - prompt
    match stage.entry_point:
        case "train_ppo" | "train_grpo":
            completion = getattr(config, stage.entry_point[6:]).max_new_tokens
        case "sample":
            completion = _longest_sample(plan, "dev", "test")
        case "pool":
            completion = _longest_sample(plan, stage.words["split"], "heldout")
        case "label_revision":
            prompt, completion = config.preset.max_prompt_tokens, config.preset.max_new_tokens
        case "label_judge" if not is_remote(stage):
            prompt = config.preset.judge.max_prompt_tokens
            completion = 1 + getattr(config.preset.reasoning, "max_new_tokens", 0)
        case _:
            prompt, completion = _written(stage.words.get("on", ""), plan)
    return prompt, completion


def find_environment(stage: Stage, plan: Plan) -> EnvironmentPreset | None:
    """Preset of the environment in which the stage plays, or whose episodes it learns from."""
    table, _, name = stage.words.get("on", "").partition("/")
    while table in (PAIRS, EPISODES) and name in plan.rows.get(table, {}):
        table, _, name = plan.rows[table][name]["on"].partition("/")
    if table != ENVIRONMENTS:
        return None
    return EnvironmentPreset.model_validate(plan.presets[plan.rows[ENVIRONMENTS][name][PRESET]])


def count_starts(environment: EnvironmentPreset, split: str, plan: Plan) -> int:
    """Rows of a split that episodes start from."""
    if environment.starts == "prompts":
        return plan.data.prompts.get(split, 0)
    return getattr(environment.starts, split)


def _longest_sample(plan: Plan, *samplings: str) -> int:
    """Largest number of new tokens that any of these keys of section `sampling` allows."""
    return max(plan.content["sampling"][split]["max_new_tokens"] for split in samplings)


def _written(on: str, plan: Plan) -> tuple[int, int]:
    """Tokens of the longest prompt and completion in the folder `on`."""
    table, _, name = on.partition("/")
    if table == POOLS:
        split = plan.rows[POOLS][name]["split"]
        return plan.data.longest[0], _longest_sample(plan, split, "heldout")
    if table not in (PAIRS, STEPS):
        return plan.data.longest
    words = plan.rows[table][name]
    preset = plan.presets[words[PRESET]]
    if words["by"] == "people":
        # Of people's rows the length of both together is known.
        prompt = min(plan.data.longest[0], preset["max_tokens"] - 1)
        return prompt, preset["max_tokens"] - prompt
    prompt, completion = _written(words["on"], plan)
    return prompt, max(completion, preset.get("max_new_tokens", 0))


def list_scorers(reward: str, plan: Plan) -> tuple[str, ...]:
    """What each model is for that `rewards/..` asks: `reward`, `process` or `policy`.

    None in environments, and none of a teacher, which is no reward.
    """
    table, _, name = reward.partition("/")
    if table != REWARDS:
        return ()
    words = plan.rows[REWARDS][name]
    preset = plan.presets[words[PRESET]]
    if words["by"] != "rule":
        use = "process" if words["by"] == "process" else "reward"
        return (use,) * preset.get("members", 1)
    kinds = Composition.model_validate(preset).kinds()
    if kinds & {"scorer", "process"}:
        return list_scorers(words["on"], plan)
    return ("policy",) if "judge" in kinds else ()


def count_completions(stage: Stage, plan: Plan) -> int:
    """Completions of a prompt that the stage draws, or reads side by side."""
    match stage.entry_point:
        case "train_ppo" | "train_grpo":
            return getattr(stage.config, stage.entry_point[6:]).completions_per_prompt
        case "sample":
            return plan.content["sampling"]["test"]["num_samples"]
        case "pool":
            return plan.content["sampling"][stage.words["split"]]["num_samples"]
        case "play_policy":
            environment = find_environment(stage, plan)
            assert environment is not None
            return stage.words.get("num_episodes", environment.num_episodes)
        case "steps_completions":
            return max(1, stage.config.preset.num_completions)
        case _:
            num_samples = plan.content["sampling"][pool_split(stage, plan)]["num_samples"]
            return label_preset(stage, plan).get("max_solutions_per_problem", num_samples)


def pool_split(stage: Stage, plan: Plan) -> str:
    """Split of the problems in the pool from which the stage's input was made."""
    words: Mapping[str, Any] = stage.words
    while (table := words.get("on", "").partition("/"))[0] in (PAIRS, STEPS):
        words = plan.rows[table[0]][table[2]]
    return plan.rows[POOLS].get(table[2], {}).get("split", "preference")


def find_label_kind(stage: Stage, plan: Plan) -> str | None:
    """Kind of the row that labelled the pairs which the stage learns from; None without pairs."""
    table, _, name = stage.words.get("on", "").partition("/")
    return plan.rows[PAIRS][name]["by"] if table == PAIRS else None


def label_preset(stage: Stage, plan: Plan) -> Content:
    """The preset that labelled the steps or pairs which the stage learns from."""
    table, _, name = stage.words.get("on", "").partition("/")
    return plan.presets.get(plan.rows[table][name][PRESET], {}) if table in (PAIRS, STEPS) else {}
