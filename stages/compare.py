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
from stages.records import lines
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.report import (
    comparison,
    costs,
    page,
    plots,
    quality,
    results,
    sections,
    training_curves,
    transcripts,
    verdict,
)
from stages.report.evaluation_config import EvaluationConfig
from stages.report.results import Results, read_json
from stages.report.sections import Image
from stages.report.transcripts import Transcript
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
        found = results.read(DATA / "evaluations", names, config.seeds, config.baseline)
        metrics = measure(found, plan, config)
        curves = {
            name: one
            for name in found.tables
            if (one := training_curves.read(DATA / f"policies/{name}/training", config.seeds))
        }
        with outputs.replace(OUTPUT) as folder:
            (folder / "plots").mkdir(parents=True)
            draw(folder / "plots", metrics, found, curves)
            outputs.write_json(folder / "metrics.json", metrics)
            write(folder, metrics, shown(found, config.seeds[0]), list(curves))
        accuracy = {name: one["mean_accuracy"] for name, one in metrics["policies"].items()}
        run.log(0, {f"{name}/mean_accuracy": one["value"] for name, one in accuracy.items()})


def measure(found: Results, plan: costs.Plan, config: Config) -> dict[str, Any]:
    """The content of metrics.json."""
    metrics = comparison.compare(found, confidence=config.evaluation.confidence)
    spent = costs.of_rows(DATA, plan, config.seeds)
    return {
        "verdict": verdict.sentences(metrics),
        **metrics,
        "quality": quality.measure(DATA, plan, config.seeds),
        "costs": {"policies": costs.of_policies(plan, config.baseline, spent), "rows": spent},
    }


def draw(
    folder: Path,
    metrics: dict[str, Any],
    found: Results,
    curves: dict[str, training_curves.Curves],
) -> None:
    """All plots, and their numbers as CSV."""
    plots.accuracy(folder / "accuracy.svg", metrics)
    plots.write_accuracy(folder / "accuracy.csv", metrics)
    plots.accuracy_by_n(folder / "accuracy_by_n.svg", found)
    plots.write_accuracy_by_n(folder / "accuracy_by_n.csv", found)
    colours = plots.colours(found.tables)
    for name, one in curves.items():
        training_curves.draw(folder / f"training-{name}.svg", one, colours[name])
    training_curves.write(folder / "training.csv", curves, metrics["seeds"])


def shown(found: Results, seed: int) -> list[Transcript]:
    """Problems that are shown in full, with the greedy completions of a seed."""
    prompts = list(lines.read(rows.PROMPTS / "test.jsonl", Prompt))
    greedy = {
        name: list(lines.read(DATA / f"samples/{name}/{seed}/test_greedy.jsonl", Completion))
        for name in found.tables
    }
    return transcripts.choose(prompts, greedy, seed)


def write(
    folder: Path, metrics: dict[str, Any], problems: list[Transcript], curves: list[str]
) -> None:
    """The page, the same as Markdown, and the verdict."""
    alt = "Mean accuracy of each policy with its interval, and a dot for each seed"
    picture, said = Image(file="accuracy.svg", alt=alt), metrics["verdict"]
    parts = sections.sections(metrics, problems, curves)
    html = page.html(TITLE, picture, said, parts, folder / "plots")
    (folder / "report.html").write_text(html, encoding="utf-8")
    text = page.markdown(TITLE, picture, said, parts)
    (folder / "report.md").write_text(text, encoding="utf-8")
    (folder / "verdict.txt").write_text("\n".join(said) + "\n", encoding="utf-8")


if __name__ == "__main__":
    process.run(main)
