"""Compare everything that scores completions: how well it chooses, and how good it is by itself.

Reads, for each evaluated policy, its pool, what scorers made of it and its metrics, and the metrics
of reward and outcome models; writes `metrics.json`, `report.md` and `plots/` (PNG and CSV). A
recipe without reward models has a report that says so. Differences are paired by problem
(Miller 2024, https://arxiv.org/abs/2411.00640).
"""

import json
from pathlib import Path
from typing import Any

from stages import params, recipe, seeding
from stages.params import Params
from stages.recipe import Recipe
from stages.recipe_evaluations import Evaluation
from stages.records import lines, pools
from stages.records.pools import Completion, Score
from stages.records.problems import Prompt
from stages.reports import (
    reward_comparison,
    reward_comparison_plots,
    reward_report,
    scorer_quality,
)
from stages.reports.problem_interval import QualityConfig
from stages.rewards import aggregation, answer_checker, pool_scores
from stages.runtime import outputs, process, progress, runs

DATA = Path("data")
PROMPTS = DATA / "prepare_data/prompts/test.jsonl"
OUTPUT = DATA / "compare_rewards"


class Config(Params):
    """What compare_rewards reads of params.yaml."""

    seed: int
    plan: Recipe
    reward_quality: QualityConfig


def main() -> None:
    """Write `metrics.json`, `report.md` and `plots/`."""
    with runs.start("compare_rewards", OUTPUT) as run:
        config = params.load(Config)
        seed = seeding.derive(config.seed, "compare_rewards")
        evaluated = config.plan.evaluate_policy
        comparison = {
            "confidence": config.reward_quality.confidence,
            "pools": {
                policy: compare_pool(policy, evaluated[policy], config, seed)
                for policy in recipe.evaluated(config.plan)
            },
            "reward_models": reward_comparison.reward_models(config.plan, read_metrics),
            "outcome_models": reward_comparison.outcome_models(config.plan, read_metrics),
        }
        curves = reward_comparison.noise_curves(comparison["reward_models"])
        with outputs.replace(OUTPUT / "plots") as temporary:
            images = reward_comparison_plots.draw(temporary, comparison["pools"], curves)
        report = reward_report.render(comparison, images=[f"plots/{image}" for image in images])
        with outputs.replace(OUTPUT / "report.md") as temporary:
            temporary.write_text(report, encoding="utf-8")
        outputs.write_json(OUTPUT / "metrics.json", comparison)
        for policy, pool in comparison["pools"].items():
            for name, one in pool["scorers"].items():
                run.log(0, {f"{policy}/{name}/best_of": one["best_of"]["value"]})


def compare_pool(policy: str, entry: Evaluation, config: Config, seed: int) -> dict[str, Any]:
    """What needs no scores on one policy's pool, and each of its scorers, by name."""
    problems = pools.by_problem(
        lines.read(PROMPTS, Prompt),
        lines.read(DATA / f"sample_candidates/{entry.pool}/pool.jsonl", Completion),
    )
    judged = progress.track(problems, total=len(problems), label=f"judge {policy}")
    right = [
        [answer_checker.is_correct(row.completion, prompt.answer) for row in pool]
        for prompt, pool in judged
    ]
    rows = list(lines.read(DATA / f"{entry.scores}.jsonl", Score))
    scores = pools.scores(problems, rows) if rows else [None] * len(problems)
    chosen = aggregation.read(DATA / f"{entry.aggregation}.json")
    views = [
        pool_scores.by_scorer(pool, pool_rows, chosen)
        for (_, pool), pool_rows in zip(problems, scores, strict=True)
    ]
    evaluation = read_metrics(f"evaluate_policy/{policy}")
    return scorer_quality.measure(right, views, evaluation, config.reward_quality, seed)


def read_metrics(entry: str) -> dict[str, Any]:
    """The metrics of an entry of another stage."""
    return json.loads((DATA / entry / "metrics.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    process.run(main)
