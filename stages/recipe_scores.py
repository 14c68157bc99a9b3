"""Are pools scored by something, and evaluated by scores of their own?"""

from collections.abc import Iterator

from stages.recipe import Recipe
from stages.recipe_words import NO_CHOICE, NO_MODEL, table

SCORERS = ("ensemble", "reward_model", "outcome", "process")
"""The words of score_candidates that name models."""
Problems = Iterator[tuple[str, str]]
"""(place, what is wrong there)."""


def problems(recipe: Recipe) -> Problems:
    """Scores of another pool than the one evaluated, of nothing, or of steps and no choice."""
    for name, entry in recipe.score_candidates.items():
        if all(getattr(entry, kind) == NO_MODEL for kind in SCORERS):
            what = f"every model is {NO_MODEL}: name one, or take the entry out"
            yield f"score_candidates.{name}", what
    for stage in ("choose_aggregation", "evaluate_policy"):
        for name, entry in table(recipe, stage).items():
            scores = recipe.score_candidates.get(_made(entry.scores))
            if scores is not None and scores.pool != entry.pool:
                what = f"'{entry.scores}' is of the pool '{scores.pool}', not '{entry.pool}'"
                yield f"{stage}.{name}.scores", what
    for name, entry in recipe.evaluate_policy.items():
        scores = recipe.score_candidates.get(_made(entry.scores))
        has_steps = scores is not None and scores.process != NO_MODEL
        if has_steps and entry.aggregation == NO_CHOICE:
            what = f"'{entry.scores}' has scores of steps: name an entry of choose_aggregation"
            yield f"evaluate_policy.{name}.aggregation", what


def _made(word: str) -> str:
    """The entry of a word like `score_candidates/sft/scores`; nothing of `no_scores`."""
    return word.partition("/")[2].partition("/")[0]
