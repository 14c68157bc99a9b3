"""Compare the policies: what each gained over the baseline, how surely, and at what cost.

The policies are those that the plan evaluates, the baseline is its word for one. Reads what
evaluate_policy wrote for each, the metrics and run records of the stages that made it, and
the rollouts of the reinforcement-learning runs; writes
`metrics.json`, `report.md` and `plots/` (PNG and CSV). Differences are paired by problem
(Miller 2024, https://arxiv.org/abs/2411.00640).

This is a leaf: it reads others' `run/` folders, for the seconds and the memory, so its output
holds times. Nothing but the report page reads it.
"""

import json
from pathlib import Path
from typing import Any

import pydantic

from stages import params, recipe, seeding
from stages.params import Params
from stages.recipe import Recipe
from stages.records import lines
from stages.records.pools import Rollout
from stages.records.results import ProblemResult
from stages.reports import (
    comparison_plots,
    comparison_report,
    cost_tables,
    costs,
    learning_curve,
    policy_comparison,
    stage_costs,
    stage_times,
)
from stages.reports.stage_costs import StageCost
from stages.runtime import outputs, process, runs

DATA = Path("data")
OUTPUT = DATA / "compare_policies"


class ComparePolicies(Params):
    """How the paired differences are bootstrapped."""

    num_bootstrap: int = pydantic.Field(ge=100)
    """Resamples of the problems for each interval."""
    confidence: float = pydantic.Field(gt=0, lt=1)
    """Coverage of the intervals of the differences; that of evaluate_policy, to be read alike."""


class Config(Params):
    """What compare_policies reads of params.yaml."""

    seed: int
    plan: Recipe
    compare_policies: ComparePolicies


def main() -> None:
    """Write `metrics.json`, `report.md` and `plots/`."""
    with runs.start("compare_policies", OUTPUT) as run:
        config = params.load(Config)
        made_by = recipe.evaluated(config.plan)
        evaluations = {policy: read_json("evaluate_policy", policy) for policy in made_by}
        comparison = policy_comparison.compare(
            evaluations,
            {policy: results(policy) for policy in made_by},
            made_by,
            num_resamples=config.compare_policies.num_bootstrap,
            confidence=config.compare_policies.confidence,
            seed=seeding.derive(config.seed, "compare_policies"),
        )
        paid = costs.paid(config.plan)
        spent = {entry: cost(entry) for entry in stage_times.entries(config.plan)}
        comparison["costs"] = {
            policy: {"stages": entries} | stage_costs.together([spent[entry] for entry in entries])
            for policy, entries in paid.items()
        }
        comparison["stages"] = {entry: stage_costs.entry(one) for entry, one in spent.items()}
        curves = {name: curve(entry) for name, entry in recipe.rollout_entries(config.plan)}
        with outputs.replace(OUTPUT / "plots") as temporary:
            images = comparison_plots.draw(temporary, evaluations, curves)
        report = comparison_report.render(
            comparison,
            evaluations,
            costs=cost_tables.section(paid, made_by, spent),
            images=[f"plots/{image}" for image in images],
        )
        with outputs.replace(OUTPUT / "report.md") as temporary:
            temporary.write_text(report, encoding="utf-8")
        outputs.write_json(OUTPUT / "metrics.json", comparison)
        for name, policy in comparison["policies"].items():
            run.log(0, {f"{name}/mean_accuracy": policy["mean_accuracy"]})


def results(policy: str) -> list[ProblemResult]:
    """What the policy did on each test problem."""
    return list(lines.read(DATA / f"evaluate_policy/{policy}/per_problem.jsonl", ProblemResult))


def curve(entry: str) -> list[learning_curve.CurvePoint]:
    """What the rollouts of a policy were like while it was trained."""
    return learning_curve.points(lines.read(DATA / entry / "rollouts.jsonl", Rollout))


def cost(entry: str) -> StageCost:
    """What one entry spent, on the machine that executed it; some have no models to tell of."""
    metrics = read_json(entry) if entry.startswith(costs.SPENDING_STAGES) else {}
    return stage_costs.read(metrics, read_json(entry, name="run/run.json"))


def read_json(*folders: str, name: str = "metrics.json") -> dict[str, Any]:
    """A JSON file that another stage wrote."""
    return json.loads(DATA.joinpath(*folders, name).read_text(encoding="utf-8"))


if __name__ == "__main__":
    process.run(main)
