"""Whether probes and model cards are of the right policy, pool and baseline."""

from collections.abc import Iterator

from stages.recipe import Recipe
from stages.recipe_words import NO_FILE


def problems(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Probes and cards under the name of another policy, or against another than the baseline."""
    for name, probing in recipe.probe_policy.items():
        evaluation = recipe.evaluate_policy.get(name)
        pool = recipe.sample_candidates.get(probing.pool)
        if evaluation is None or evaluation.pool != probing.pool:
            what = f"expected the pool of evaluate_policy.{name}, found '{probing.pool}'"
            yield f"probe_policy.{name}.pool", what
        elif pool is not None and pool.policy != probing.policy:
            what = f"'{probing.pool}' is of {pool.policy}, not of {probing.policy}"
            yield f"probe_policy.{name}.policy", what
    baseline = f"probe_policy/{recipe.baseline}/probes.jsonl"
    for name, card in recipe.write_card.items():
        probed = recipe.probe_policy.get(name)
        if probed is None or probed.policy != f"{card.made_by}/policy":
            what = f"expected the maker of the policy of probe_policy.{name}, found {card.made_by}"
            yield f"write_card.{name}.made_by", what
        if card.against != (NO_FILE if name == recipe.baseline else baseline):
            what = f"expected {baseline}, of the baseline ({NO_FILE} for its own card)"
            yield f"write_card.{name}.against", f"{what}, found {card.against}"
