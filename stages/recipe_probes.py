"""Whether probes are of the right policy and pool, and have a baseline."""

from collections.abc import Iterator

from stages.recipe import PREPARE_DATA, Recipe, maker


def problems(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Probes under the name of another policy, twice of one, or without those of the baseline."""
    for name, probing in recipe.probe_policy.items():
        evaluation = recipe.evaluate_policy.get(name)
        pool = recipe.sample_candidates.get(probing.pool)
        if evaluation is None or evaluation.pool != probing.pool:
            what = f"expected the pool of evaluate_policy.{name}, found '{probing.pool}'"
            yield f"probe_policy.{name}.pool", what
        elif pool is not None and pool.policy != probing.policy:
            what = f"'{probing.pool}' is of {pool.policy}, not of {probing.policy}"
            yield f"probe_policy.{name}.policy", what
    named: dict[str, str] = {}
    for name, probing in recipe.probe_policy.items():
        if maker(probing.policy) == PREPARE_DATA:
            continue  # a base model, which has no card of ours
        if (first := named.setdefault(probing.policy, name)) != name:
            what = f"{probing.policy} is probed as '{first}' already, and has one model card"
            yield f"probe_policy.{name}.policy", what
    if recipe.probe_policy and recipe.baseline not in recipe.probe_policy:
        what = f"expected an entry '{recipe.baseline}', the baseline that others are compared with"
        yield "probe_policy", f"{what}; found {', '.join(recipe.probe_policy)}"
