"""How many tokens of an equal budget each policy has left for its own training.

    python -m stages.share_tokens needed dpo,ppo            DVC's names of what they are made from
    python -m stages.share_tokens budget dpo,ppo 1000000    write `token_budgets` into params.yaml,
                                                            print DVC's names of their test pools

No stage of the pipeline: `flows.compare` calls it in a copy of the repository. A policy pays what
the baseline did not need: its pairs' pool, judge and revisions, its reward models and the policies
it starts from, each in full, also where several policies share them.
"""

import json
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from stages import params, recipe
from stages.params import PARAMS_PATH, Params
from stages.recipe import Recipe
from stages.recipe_budgets import BUDGETED
from stages.reports import costs
from stages.runtime import process

DATA = Path("data")


class Planned(Params):
    """What it reads of recipes.yaml."""

    plan: Recipe


def main(what: str, policies: str, tokens: str = "0") -> None:
    """Print a list of DVC's stages, as JSON."""
    plan = params.load(Planned).plan
    try:
        bought = {policy: before(plan, policy) for policy in policies.split(",")}
        check_apart(plan, bought)
        if what == "budget":
            write(plan, {policy: left(bought[policy], policy, int(tokens)) for policy in bought})
            pools = [plan.evaluate_policy[name].pool for name in (plan.baseline, *bought)]
            stages = [f"sample_candidates@{pool}" for pool in pools]
        else:
            needed = dict.fromkeys(entry for entries in bought.values() for entry in entries)
            starts = [recipe.evaluated(plan)[plan.baseline], *needed]
            stages = [entry.replace("/", "@") for entry in starts]
    except ValueError as error:
        sys.exit(str(error))
    sys.stdout.write(json.dumps(stages) + "\n")


def before(plan: Recipe, policy: str) -> list[str]:
    """The entries that a policy pays for before its own training.

    Raises:
        ValueError: there is no such policy, it is the baseline, or nothing can end its training.
    """
    made_by = recipe.evaluated(plan)
    if policy not in made_by or policy == plan.baseline:
        others = ", ".join(name for name in made_by if name != plan.baseline)
        raise ValueError(f"there is no policy '{policy}' to compare; the plan has {others}")
    if not made_by[policy].startswith(BUDGETED):
        raise ValueError(
            f"'{policy}' is made by {made_by[policy]}, which takes no budget of tokens; these do: "
            f"{', '.join(BUDGETED)}"
        )
    return [entry for entry in costs.paid(plan)[policy] if entry != made_by[policy]]


def check_apart(plan: Recipe, bought: dict[str, list[str]]) -> None:
    """Refuse to compare a policy with one that it is made from.

    Raises:
        ValueError: naming the two.
    """
    for policy, entries in bought.items():
        for other in bought:
            if recipe.evaluated(plan)[other] in entries:
                raise ValueError(f"'{policy}' is made from '{other}': compare one of them")


def left(entries: list[str], policy: str, tokens: int) -> int:
    """What of the budget is left after these entries.

    Raises:
        ValueError: nothing.
    """
    spent = {entry: total(read(entry)) for entry in entries}
    rest = tokens - sum(spent.values())
    if rest <= 0:
        listed = ", ".join(f"{entry} {number:,}" for entry, number in spent.items())
        raise ValueError(
            f"'{policy}' costs {sum(spent.values()):,} tokens before its own training ({listed}) "
            f"and the budget is {tokens:,}: raise --tokens, or make what it needs cheaper"
        )
    return rest


def read(entry: str) -> dict[str, Any]:
    """The metrics of an entry."""
    return json.loads((DATA / entry / "metrics.json").read_text(encoding="utf-8"))


def total(metrics: dict[str, Any]) -> int:
    """Tokens generated and trained on."""
    return metrics["generated_tokens"] + metrics.get("trained_tokens", 0)


def write(plan: Recipe, budgets: dict[str, int]) -> None:
    """Write each policy's budget into the section of the stage that makes it."""
    editor = YAML(typ="rt")
    content = editor.load(PARAMS_PATH)
    for policy, made_by in recipe.evaluated(plan).items():
        if policy in budgets:
            stage, _, name = made_by.partition("/")
            content[stage]["token_budgets"][name] = budgets[policy]
    editor.dump(content, PARAMS_PATH)


if __name__ == "__main__":
    process.run(main)
