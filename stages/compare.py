"""Compare the policies, and write the report.

    python -m stages compare

Reads the evaluations, transcripts and trainings of all policies, and the metrics of every other
row. Writes `data/report/`: `report.html` (one page that opens from disk), `report.md`,
`metrics.json`, `verdict.txt` (the conclusions, a line each: gains as sampled and at the best
temperatures, where they come from, pairs of policies, reranking by reward models, judges that
prefer length; if there are any, controls and environments in which policies played from test
starts) and `plots/`; and `data/headlines/`, the numbers that DVC lists.
Differences are paired by seed and by problem or start, with intervals over both
(stages/algorithms/statistics/crossed_means.py), and Holm's adjustment within each family of
comparisons; with fewer than three seeds there is no verdict. If no problem has a gold answer,
mean rewards are compared (stages/report/reward_comparison.py). Controls have a separate section
and separate tests (stages/report/controls.py). No output has a time.
"""

from typing import Any

from stages.config import Params
from stages.params import load_config
from stages.report import headlines
from stages.report.evaluation_config import EvaluationConfig
from stages.rows import DATA
from stages.runtime import outputs, runs

OUTPUT = DATA / "report"


class Config(Params):
    """Keys of params.yaml that compare reads."""

    seeds: list[int]
    baseline: str
    model: dict[str, Any]
    engine: str
    evaluation: EvaluationConfig


def main() -> None:
    """Write the report."""
    # Imports scipy and matplotlib, which `plan` does not need when it imports `Config`.
    from stages.report import build

    with runs.start("compare") as run:
        config = load_config(Config)
        measured = build.read_run(DATA, config.baseline, config.seeds, config.evaluation.confidence)
        metrics = build.compute_metrics(measured)
        with outputs.replace(OUTPUT) as folder:
            build.write_report(folder, measured, metrics, model=config.model, engine=config.engine)
        with outputs.replace(DATA / "headlines") as folder:
            folder.mkdir()
            headlines.write_headlines(folder, metrics)
        for name, values in metrics["policies"].items():
            headline = (
                {"mean_accuracy"} if measured.has_answers else {k for k in values if "reward/" in k}
            )
            run.log(0, {f"{name}/{key}": values[key]["value"] for key in sorted(headline)})
