"""Does the true reward fall while the proxy rises, where, and does an ensemble help?

    python -m stages.report_overoptimization

Reads the baseline's test pool with the scores of a single reward model and of an ensemble
(best-of-n), and what evaluate_checkpoints found along each run; writes `metrics.json`,
`report.md` and `plots/` (PNG and CSV). Curves and forms: Gao et al. 2023,
https://arxiv.org/abs/2210.10760. A plan without either has a report that says so.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stages import params, seeding
from stages.params import Params
from stages.recipe import Recipe
from stages.records import lines, pools
from stages.records.checkpoint_result import CheckpointResult
from stages.records.completion import Completion
from stages.records.prompt import Prompt
from stages.records.score import Score
from stages.reports import (
    overoptimization,
    overoptimization_curves,
    overoptimization_plot,
    overoptimization_report,
    training_page,
)
from stages.reports.overoptimization import Curve, OveroptimizationConfig
from stages.runtime import outputs, process, progress, runs

DATA = Path("data")
PROMPTS = DATA / "prepare_data/prompts/test.jsonl"
OUTPUT = DATA / "report_overoptimization"


class Config(Params):
    """What report_overoptimization reads of params.yaml."""

    seed: int
    plan: Recipe
    report_overoptimization: OveroptimizationConfig


def main() -> None:
    """Write `metrics.json`, `report.md` and `plots/`."""
    with runs.start("report_overoptimization", OUTPUT) as run:
        config = params.load(Config)
        settings = config.report_overoptimization
        seed = seeding.derive(config.seed, "report_overoptimization")
        found = dict(best_of_n(config.plan))
        chosen = [curve for curve in found.values() if isinstance(curve, Curve)]
        units = {curve.scorer: curve.units for curve in chosen}
        names = sorted(config.plan.evaluate_checkpoints)
        along = [curve for name in names for curve in of_run(name, units)]
        curves = [
            overoptimization.measure(curve, settings, seed)
            for curve in progress.track([*chosen, *along], label="fit")
        ]
        metrics = {
            "confidence": settings.confidence,
            "curves": [overoptimization.without_bands(one) for one in curves],
            "left_out": {name: one for name, one in found.items() if isinstance(one, str)},
            "runs": {name: read_metrics(name) for name in names},
        }
        with outputs.replace(OUTPUT / "plots") as temporary:
            temporary.mkdir()
            images = overoptimization_plot.write(temporary, curves)
            images += training_page.write(temporary, metrics["runs"])
        paths = [f"plots/{image}" for image in images]
        with outputs.replace(OUTPUT / "report.md") as temporary:
            temporary.write_text(overoptimization_report.render(metrics, images=paths), "utf-8")
        outputs.write_json(OUTPUT / "metrics.json", metrics)
        for one in curves:
            name = f"{one['method']}/{one['scorer']}"
            run.log(0, {f"{name}/accuracy_after_best": one["accuracy_after_best"]["value"]})


def best_of_n(plan: Recipe) -> Iterator[tuple[str, Curve | str]]:
    """Each kind of scorer of the baseline's test pool: its curve, or why it has none."""
    pool = plan.evaluate_policy[plan.baseline].pool
    completions = lines.read(DATA / f"sample_candidates/{pool}/pool.jsonl", Completion)
    problems = pools.by_problem(lines.read(PROMPTS, Prompt), completions)
    rows = list(lines.read(DATA / f"{plan.evaluate_policy[plan.baseline].scores}.jsonl", Score))
    for scorer in overoptimization_curves.scorers(rows):
        scores = [[row.scores[scorer] for row in one] for one in pools.scores(problems, rows)]
        yield scorer, overoptimization_curves.of_pool(scorer, problems, scores)


def of_run(name: str, units: dict[str, dict[str, float]]) -> list[Curve]:
    """A run's curves, by each scorer that has a unit."""
    rows = list(lines.read(folder(name) / "rows.jsonl", CheckpointResult))
    return overoptimization_curves.of_run(name, rows, units)


def folder(name: str) -> Path:
    """Where a run's evaluation is."""
    return DATA / "evaluate_checkpoints" / name


def read_metrics(name: str) -> dict[str, Any]:
    """What evaluate_checkpoints found, in means."""
    return json.loads((folder(name) / "metrics.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    process.run(main)
