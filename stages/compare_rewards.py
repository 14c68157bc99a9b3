"""Compare everything that scores completions: how well it chooses, and how good it is by itself.

Reads the scores that score_candidates wrote, the pools they are of, and the metrics of reward
and outcome models; writes `metrics.json`, `report.md` and `plots/` (PNG and CSV). A recipe
without reward models has a report that says so. Each pool is judged once, by the answer
checker; differences are paired by problem (Miller 2024, https://arxiv.org/abs/2411.00640).
"""

import json
from pathlib import Path
from typing import Any

from stages import params, seeding
from stages.params import Params
from stages.recipe import Recipe
from stages.records import lines, pools
from stages.records.completion import Completion
from stages.records.prompt import Prompt
from stages.records.score import Score
from stages.reports import (
    reward_comparison,
    reward_comparison_plots,
    reward_report,
    scorer_quality,
)
from stages.reports.problem_interval import QualityConfig
from stages.rewards import pool_verdicts
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
        used = sorted({entry.pool for entry in config.plan.score_candidates.values()})
        comparison = {
            "confidence": config.reward_quality.confidence,
            "pools": {name: compare_pool(name, config, seed) for name in used},
            "reward_models": reward_comparison.reward_models(config.plan, read_metrics),
            "outcome_models": reward_comparison.outcome_models(config.plan, read_metrics),
        }
        curves = reward_comparison.noise_curves(comparison["reward_models"])
        with outputs.replace(OUTPUT / "plots") as temporary:
            images = reward_comparison_plots.draw(temporary, comparison["pools"], curves)
        report = reward_report.render(comparison, images=[f"plots/{image}" for image in images])
        with outputs.replace(OUTPUT / "report.md") as temporary:
            temporary.write_text(report, encoding="utf-8")
        with outputs.replace(OUTPUT / "metrics.json") as temporary:
            temporary.write_text(json.dumps(comparison, indent=2) + "\n", encoding="utf-8")
        for pool in comparison["pools"].values():
            for name, one in pool["scorers"].items():
                run.log(0, {f"{name}/best_of": one["best_of"]["value"]})


def compare_pool(pool: str, config: Config, seed: int) -> dict[str, Any]:
    """What needs no scores on one pool, and each of its scorers, by name."""
    problems = pools.by_problem(
        lines.read(PROMPTS, Prompt),
        lines.read(DATA / f"sample_candidates/{pool}/pool.jsonl", Completion),
    )
    judged = progress.track(problems, total=len(problems), label=f"judge {pool}")
    verdicts = [pool_verdicts.judge(prompt, rows) for prompt, rows in judged]
    entries = config.plan.score_candidates
    scorers = {}
    for name in sorted(name for name, entry in entries.items() if entry.pool == pool):
        path = DATA / f"score_candidates/{name}/scores.jsonl"
        scores = pools.scores(problems, lines.read(path, Score))
        quality = scorer_quality.measure(verdicts, scores, config.reward_quality, seed)
        scorers[name] = {"scorer": entries[name].scorer} | quality
    return scorer_quality.baselines(verdicts, config.reward_quality, seed) | {"scorers": scorers}


def read_metrics(entry: str) -> dict[str, Any]:
    """The metrics of an entry of another stage."""
    return json.loads((DATA / entry / "metrics.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    process.run(main)
