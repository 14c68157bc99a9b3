"""Do the budgets of tokens name entries that are planned?"""

from typing import Any

from stages.recipe_words import section

BUDGETED = ("train_dpo", "train_ppo", "train_grpo")
"""Stages whose training a budget can end."""


def find_problems(content: dict[str, Any]) -> list[str]:
    """Every budget that would end nothing; called by stages.check_params."""
    return [
        f"{stage}.token_budgets.{name}: the plan has no such entry of {stage}"
        for stage in BUDGETED
        for name in section(section(content, stage), "token_budgets")
        if name not in section(section(content, "plan"), stage)
    ]
