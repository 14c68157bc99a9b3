"""Check every recipe of recipes.yaml, planned or not: each of its words names something.

Called by stages.check_params. DVC itself would find a wrong word only when it comes to its stage.
"""

import difflib
import itertools
from collections.abc import Collection, Iterator
from typing import Any

import pydantic

from stages import lineage, recipe_probes, recipe_rewards, recipe_scores, recipe_words
from stages.models.start import BASE, NO_BASE
from stages.recipe import ENSEMBLES, POLICY_STAGES, TABLES, Recipe
from stages.recipe_words import (
    ONLINE_STAGES,
    PRESETS,
    REWARDS,
    section,
    table,
)

RECIPES, PLAN, BASELINE = "recipes", "plan", "baseline"
ASSEMBLER, _, _ = ENSEMBLES.partition("/")
"""The stage without entries that every word of an ensemble waits for."""
ONE_ASSEMBLER = (
    "one stage assembles all ensembles, so whoever names one waits for every reward model: name a "
    "single one in its place, train_reward_model/<n>/reward_model"
)
"""Why an ensemble closes a circle that its members do not."""
Problems = Iterator[tuple[str, str]]
"""(place, what is wrong there)."""


def find_problems(content: dict[str, Any]) -> list[str]:
    """Everything that is wrong in `recipes` and `plan`; the plan once, as the recipe that it is."""
    named = content.get(RECIPES)
    if not isinstance(named, dict):
        return [f"{RECIPES}: expected a table of recipes, found {named!r}"]
    places = {f"{RECIPES}.{name}": value for name, value in named.items()}
    if PLAN in content and content[PLAN] not in named.values():
        places[PLAN] = content[PLAN]
    problems = []
    for place, value in places.items():
        try:
            checked = Recipe.model_validate(value)
        except pydantic.ValidationError as error:
            found = malformed(error)
        else:
            found = itertools.chain(
                wrong_words(checked, content),
                wrong_splits(checked),
                wrong_references(checked),
                recipe_scores.problems(checked),
                wrong_starts(checked),
                recipe_rewards.problems(checked, content),
                recipe_rewards.judges(checked, content),
                numbers_twice(checked),
                names_twice(checked),
                no_baseline(checked),
                recipe_probes.problems(checked),
                random_base(checked, content),
                circles(checked),
            )
        problems += [f"{place}.{where}: {what}".replace(".:", ":") for where, what in found]
    return problems


def planned(content: dict[str, Any], stage: str) -> list[dict[str, str]] | None:
    """Section -> entry, of each run of a stage that is planned; None of a stage without presets."""
    if stage not in PRESETS:
        return None
    words = {PRESETS[stage]: "preset"} | ({REWARDS: "reward"} if stage in ONLINE_STAGES else {})
    entries = section(section(content, PLAN), stage).values()
    return [
        {name: str(entry.get(word)) for name, word in words.items()}
        for entry in entries
        if isinstance(entry, dict)
    ]


def malformed(error: pydantic.ValidationError) -> Problems:
    """Keys that are missing, unknown or no words."""
    for item in error.errors():
        where = ".".join(str(part) for part in item["loc"])
        match item["type"], len(item["loc"]):
            case "missing", 1:
                yield where, "missing; a stage without entries says {}"
            case "missing", _:
                yield where, "missing"
            case "extra_forbidden", _:
                yield where, "unknown key; remove it"
            case _:
                yield where, f"{item['msg']} (found {item['input']!r})"


def wrong_words(recipe: Recipe, content: dict[str, Any]) -> Problems:
    """Words that name no preset, split, entry, model or set of rows."""
    known = recipe_words.known(recipe, content)
    for stage in TABLES:
        for name, entry in table(recipe, stage).items():
            for word, value in entry.model_dump().items():
                names = known.get((stage, word), known.get(("", word)))
                if names is not None and value not in names:
                    tables = {"preset": PRESETS.get(stage), "reward": REWARDS}
                    what = f"'{tables[word]}' has no entry" if word in tables else "there is no"
                    yield f"{stage}.{name}.{word}", f"{what} '{value}'{meant(value, names)}"


def wrong_splits(recipe: Recipe) -> Problems:
    """Pools, and labelled steps, of other problems than they are used for."""
    for stage, word, split in (
        ("label_preferences", "train", "preference"),
        ("label_preferences", "heldout", "dev"),
        ("judge_preferences", "train", "preference"),
        ("judge_preferences", "heldout", "dev"),
        ("revise_answers", "train", "preference"),
        ("revise_answers", "heldout", "dev"),
        ("train_outcome_reward", "pool", "preference"),
        ("train_outcome_reward", "heldout", "dev"),
        ("score_candidates", "pool", None),
        ("choose_aggregation", "pool", "dev"),
        ("evaluate_policy", "pool", "test"),
        ("probe_policy", "pool", "test"),
        ("select_demonstrations", "pool", None),
        ("label_steps", "pool", None),
    ):
        for name, entry in table(recipe, stage).items():
            pool = recipe.sample_candidates.get(getattr(entry, word))
            expected = split or entry.split
            if pool is not None and pool.split != expected:
                what = f"expected a pool of the split '{expected}', found one of '{pool.split}'"
                yield f"{stage}.{name}.{word}", what
    for stage, word, split in (
        ("train_process_reward", "steps", "preference"),
        ("train_process_reward", "heldout", "dev"),
        ("evaluate_process_reward", "dev", "dev"),
        ("evaluate_process_reward", "test", "test"),
    ):
        for name, entry in table(recipe, stage).items():
            maker, _, made = getattr(entry, word).partition("/")
            steps = recipe.label_steps.get(made) if maker == "label_steps" else None
            if steps is not None and steps.split != split:
                what = f"expected steps of the split '{split}', found those of '{steps.split}'"
                yield f"{stage}.{name}.{word}", what


def wrong_references(recipe: Recipe) -> Problems:
    """Reference log-probs of another policy than the one trained, or of other pairs."""
    for name, dpo in recipe.train_dpo.items():
        reference = recipe.compute_ref_logprobs.get(dpo.reference)
        if reference is not None and (reference.policy, reference.pairs) != (dpo.start, dpo.pairs):
            what = f"'{dpo.reference}' is of {reference.policy} on pairs '{reference.pairs}'"
            yield f"train_dpo.{name}.reference", f"{what}, not of this entry's start and pairs"


def wrong_starts(recipe: Recipe) -> Problems:
    """Checkpoints compared with another policy than the one that their run started from."""
    for name, entry in recipe.evaluate_checkpoints.items():
        stage, _, made = entry.run.partition("/")
        run = table(recipe, stage).get(made) if stage in recipe_words.RUN_STAGES else None
        if run is not None and run.start != entry.reference:
            what = f"{entry.run} started from '{run.start}': step 0 is that policy, write it here"
            yield f"evaluate_checkpoints.{name}.reference", what


def numbers_twice(recipe: Recipe) -> Problems:
    """Two members of an ensemble with one number."""
    seen: dict[tuple[str, int], str] = {}
    for name, model in recipe.train_reward_model.items():
        key = model.ensemble, model.member
        if key in seen:
            what = f"'{seen[key]}' is member {key[1]} of the ensemble '{key[0]}' too"
            yield f"train_reward_model.{name}.member", what
        seen[key] = name


def no_baseline(recipe: Recipe) -> Problems:
    """A baseline that is not evaluated."""
    if recipe.baseline not in recipe.evaluate_policy:
        known = list(recipe.evaluate_policy)
        what = f"there is no evaluate_policy entry '{recipe.baseline}'"
        yield BASELINE, what + meant(recipe.baseline, known)


def names_twice(recipe: Recipe) -> Problems:
    """Policies of one name."""
    makers: dict[str, str] = {}
    for stage in POLICY_STAGES:
        for name in table(recipe, stage):
            if name in makers:
                what = f"{makers[name]} has a policy of this name too; reports could not tell them"
                yield f"{stage}.{name}", f"{what} apart"
            makers[name] = stage


def random_base(recipe: Recipe, content: dict[str, Any]) -> Problems:
    """The base model where it must know something and knows nothing."""
    if section(content, "model").get("path") is not None:
        return
    for stage, word in (
        ("train_grpo", "start"),
        ("evaluate_checkpoints", "reference"),
        ("evaluate_best_of_n", "policy"),
        ("sample_candidates", "policy"),
        ("probe_policy", "policy"),
    ):
        for name, entry in table(recipe, stage).items():
            if getattr(entry, word) == BASE:
                yield f"{stage}.{name}.{word}", NO_BASE


def circles(recipe: Recipe) -> Problems:
    """Entries that need each other, each circle once."""
    reads = waits(recipe)
    found: set[frozenset[str]] = set()
    for entry in reads:
        try:
            lineage.lineage(entry, reads)
        except ValueError as error:
            members = frozenset(str(error).split(" -> "))
            if members not in found:
                found.add(members)
                why = f"; {ONE_ASSEMBLER}" if ASSEMBLER in members else ""
                yield "", f"entries that need each other: {error}{why}"


def waits(recipe: Recipe) -> dict[str, list[str]]:
    """Each entry -> what DVC makes before it.

    What it reads, and for an ensemble the stage that assembles it: that one waits for every
    reward model, those of other ensembles too.
    """
    found = lineage.inputs(recipe)
    for stage in TABLES:
        for name, entry in table(recipe, stage).items():
            if any(str(word).startswith(f"{ENSEMBLES}/") for word in entry.model_dump().values()):
                found[f"{stage}/{name}"].append(ASSEMBLER)
    return found | {ASSEMBLER: list(recipe_words.folders(recipe, ["train_reward_model"]))}


def meant(value: str, known: Collection[str]) -> str:
    """A remedy: the closest of what there is, or all of it."""
    close = difflib.get_close_matches(value, known, n=1)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; there is {', '.join(sorted(known))}" if known else "; there is none at all"
