"""Compare the policies, and write the report.

    python -m stages.compare

Reads the evaluations of all policies and what every other row measured; writes `data/report/`:
`report.html` (one page that opens from disk), `report.md`, `metrics.json`, `verdict.txt` (three
sentences) and `plots/`. Differences are paired by seed and by problem, with t intervals over both
(stages/algorithms/statistics/crossed_means.py), and Holm's adjustment within each family of
comparisons; without several seeds there is no verdict. Where no problem has a gold answer, mean
rewards are compared (stages/report/reward_comparison.py). No output holds a time.
"""

import json

from stages.config import Params, load_config
from stages.records import lines
from stages.records.problems import Prompt
from stages.report import estimates, sections, stage_metrics, transcripts
from stages.report.evaluation_config import EvaluationConfig
from stages.rows import DATA, PROMPTS
from stages.runtime import outputs, process, runs

OUTPUT = DATA / "report"


class Config(Params):
    """What compare reads of params.yaml."""

    seeds: list[int]
    baseline: str
    evaluation: EvaluationConfig


def main() -> None:
    """Write the report."""
    # With scipy, pandas and matplotlib, of which `plan`, which imports `Config`, has no use.
    from stages.report import comparison, page, plots, reward_comparison

    with runs.start("compare") as run:
        config = load_config(Config)
        plan = json.loads((DATA / "plan.json").read_text(encoding="utf-8"))
        checked = next(iter(lines.read_lines(PROMPTS / "test.jsonl", Prompt))).answer is not None
        found = (estimates if checked else reward_comparison).read(
            DATA / "evaluations",
            [config.baseline, *plan["policies"]],
            config.seeds,
            config.evaluation.confidence,
        )
        costs = stage_metrics.costs_of_rows(DATA, plan, config.seeds)
        of_policies = stage_metrics.costs_of_policies(plan, config.baseline, costs)
        metrics = {
            **(comparison if checked else reward_comparison).compare(found),
            "quality": stage_metrics.quality(DATA, plan, config.seeds),
            "costs": {"policies": of_policies, "rows": costs},
        }
        curves = {
            name: one
            for name in found.tables
            if (one := plots.read_training(DATA / f"policies/{name}/training", config.seeds))
        }
        with outputs.replace(OUTPUT) as folder:
            (folder / "plots").mkdir(parents=True)
            if checked:
                plots.accuracy(folder / "plots", metrics)
                plots.accuracy_by_n(folder / "plots", found)
            plots.training(folder / "plots", curves, found)
            outputs.write_json(folder / "metrics.json", metrics)
            problems = transcripts.read(DATA / "samples", list(found.tables), config.seeds[0])
            told = sections.sections if checked else sections.by_rewards
            parts = told(metrics, problems, list(curves))
            page.write(folder, metrics["verdict"], parts, page.PICTURE if checked else None)
        for name, one in metrics["policies"].items():
            headline = {"mean_accuracy"} if checked else {k for k in one if "reward/" in k}
            run.log(0, {f"{name}/{key}": one[key]["value"] for key in sorted(headline)})


if __name__ == "__main__":
    process.run(main)
