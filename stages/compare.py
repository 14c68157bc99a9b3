"""Compare the policies, and write the report.

    python -m stages.compare

Reads the evaluations of all policies and what every other row measured; writes `data/report/`:
`report.html` (one page that opens from disk), `report.md`, `metrics.json`, `verdict.txt` (three
sentences) and `plots/`. Differences are paired by seed and by problem, with t intervals over both
(stages/algorithms/statistics/crossed_means.py), and Holm's adjustment within each family of
comparisons; without several seeds there is no verdict. No output holds a time.
"""

from pathlib import Path
from typing import Any

from stages import params, rows
from stages.params import Params
from stages.report import (
    comparison,
    estimates,
    page,
    plots,
    sections,
    stage_metrics,
    transcripts,
    verdict,
)
from stages.report.estimates import Results, read_json
from stages.report.evaluation_config import EvaluationConfig
from stages.report.plots import Curves
from stages.report.stage_metrics import Plan
from stages.runtime import outputs, process, runs

DATA = rows.DATA
OUTPUT = DATA / "report"
TITLE = "Post-training, compared"


class Config(Params):
    """What compare reads of params.yaml."""

    seeds: list[int]
    baseline: str
    evaluation: EvaluationConfig


def main() -> None:
    """Write the report."""
    with runs.start("compare") as run:
        config, plan = params.load(Config), read_json(DATA / "plan.json")
        names = list(plan["policies"])
        found = estimates.read(DATA / "evaluations", names, config.seeds, config.baseline)
        metrics = measure(found, plan, config)
        curves = {
            name: one
            for name in found.tables
            if (one := plots.read_training(DATA / f"policies/{name}/training", config.seeds))
        }
        with outputs.replace(OUTPUT) as folder:
            (folder / "plots").mkdir(parents=True)
            draw(folder / "plots", metrics, found, curves)
            outputs.write_json(folder / "metrics.json", metrics)
            problems = transcripts.read(DATA / "samples", list(found.tables), config.seeds[0])
            parts = sections.sections(metrics, problems, list(curves))
            page.write(folder, TITLE, metrics["verdict"], parts)
        accuracy = {name: one["mean_accuracy"] for name, one in metrics["policies"].items()}
        run.log(0, {f"{name}/mean_accuracy": one["value"] for name, one in accuracy.items()})


def measure(found: Results, plan: Plan, config: Config) -> dict[str, Any]:
    """The content of metrics.json."""
    metrics = comparison.compare(found, confidence=config.evaluation.confidence)
    costs = stage_metrics.costs_of_rows(DATA, plan, config.seeds)
    return {
        "verdict": verdict.sentences(metrics),
        **metrics,
        "quality": stage_metrics.quality(DATA, plan, config.seeds),
        "costs": {
            "policies": stage_metrics.costs_of_policies(plan, config.baseline, costs),
            "rows": costs,
        },
    }


def draw(folder: Path, metrics: dict[str, Any], found: Results, curves: dict[str, Curves]) -> None:
    """All plots, and their numbers as CSV."""
    plots.accuracy(folder / "accuracy.svg", metrics)
    plots.write_accuracy(folder / "accuracy.csv", metrics)
    plots.accuracy_by_n(folder / "accuracy_by_n.svg", found)
    plots.write_accuracy_by_n(folder / "accuracy_by_n.csv", found)
    colours = plots.colours(found.tables)
    for name, one in curves.items():
        plots.training(folder / f"training-{name}.svg", one, colours[name])
    plots.write_training(folder / "training.csv", curves, metrics["seeds"])


if __name__ == "__main__":
    process.run(main)
