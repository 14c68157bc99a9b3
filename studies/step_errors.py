"""Study: does a process reward model find the first wrong step, and would a trivial rule too?

    python -m studies step_errors

The first error found is the first step whose P(right) is below a threshold, chosen on dev for the
best F1 and frozen: no number of the test solutions has a part in it. Solutions are a policy's
samples of generated problems, whose truth is known, or a row of `steps` with people's marks
(ProcessBench). Metrics after "ProcessBench" (Zheng et al. 2024), https://arxiv.org/abs/2412.06559;
departure: for scalar models they choose the threshold on a part (GSM8K) of what they report.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from pydantic import Field

from stages.algorithms.statistics.error_detection import best_threshold, first_below
from stages.config import Params
from stages.loops import process_reward
from stages.loops.run import Run
from stages.models import process_head
from stages.models.device import ComputeConfig, setup
from stages.models.process_head import ProcessScorer
from stages.params import adopt_rounding
from stages.records import lines, pools
from stages.records.steps import StepLabels
from stages.report import markdown
from stages.report.evaluation_config import Intervals
from stages.rewards import reward_file, step_solutions
from stages.rows import DATA, seed_folder
from stages.runtime import outputs, process
from stages.seeding import derive_seed
from studies import step_error_metrics
from studies import study as studies
from studies.step_error_metrics import KnownSteps, StepPrediction, select_marked

SAMPLES = "samples"
RULES = {
    "outcome_and_middle": "no error where the answer is right, else the middle step",
    "always_correct": "no error anywhere",
}
Seeds = Mapping[int, Mapping[str, Any]]
"""Metrics by seed."""


class StepErrors(Intervals):
    """Whose steps are judged by what, and how sure we are of it."""

    process: str
    """A row of `rewards`, of kind process."""
    policy: str
    """The row of `policies` whose samples are judged."""
    dev: str
    """`samples` of the dev problems, or a row of `steps`: its held-out solutions."""
    test: str
    """`samples` of the test problems, or a row of `steps`."""
    max_solutions_per_problem: int = Field(ge=1)
    """Different samples of a problem."""
    leave_out_long: bool
    """Whether solutions with more tokens than the model has positions are left out and counted;
    false: they are an error."""


class Config(Params):
    """Keys that the study reads."""

    seeds: list[int]
    compute: ComputeConfig
    step_errors: StepErrors


def main() -> None:
    """Write the rows of each seed, `metrics.json` and `report.md`."""
    with studies.start_study("step_errors", plots=False) as study:
        config = studies.load_study_config(Config, "step_errors")
        metrics_by_seed = study.for_each_seed(config.seeds, partial(evaluate_scorer, config))
        report = render_report(metrics_by_seed, confidence=config.step_errors.confidence)
        study.write({str(seed): metrics for seed, metrics in metrics_by_seed.items()}, report)


def evaluate_scorer(config: Config, run: Run, folder: Path) -> dict[str, Any]:
    """The process model of one seed: its metrics, and one row per test solution."""
    settings, compute = config.step_errors, config.compute
    path = reward_file.model_path(DATA / "rewards" / settings.process, run.seed)
    scorer = process_head.load_process_scorer(path, compute, setup(compute))
    dev = read_solutions(settings, scorer, settings.dev, "dev", run.seed)
    test = read_solutions(settings, scorer, settings.test, "test", run.seed)
    step_error_metrics.check_apart(dev, test)
    dev_scores, scores = (
        [*map(select_marked, split.rows, scorer(process_reward.list_solutions(split.rows)))]
        for split in run.track([dev, test])
    )
    chosen = best_threshold(dev_scores, dev.first_errors)
    metrics: dict[str, Any] = {
        "threshold": round(chosen.threshold, 6),
        "dev_f1": round(chosen.f1, 6),
        "dev_solutions": len(dev.rows),
        "dev_left_out_long": dev.left_out_long,
        "left_out_long": test.left_out_long,
        **step_error_metrics.summarise_predictions(
            test,
            scores,
            chosen.threshold,
            num_resamples=settings.num_bootstrap,
            confidence=settings.confidence,
            seed=derive_seed(run.seed, "step_errors"),
        ),
        "lowest_is_last": process_reward.lowest_is_last(scores),
    }
    predictions = [
        StepPrediction(
            id=row.id,
            index=row.index,
            scores=[round(score, 6) for score in step_scores],
            predicted=first_below(step_scores, chosen.threshold),
            first_error=first,
        )
        for row, step_scores, first in zip(test.rows, scores, test.first_errors, strict=True)
    ]
    lines.write_lines(folder / "predictions.jsonl", predictions)
    outputs.write_json(folder / "metrics.json", metrics)
    return metrics


def read_solutions(
    settings: StepErrors, scorer: ProcessScorer, source: str, split: Literal["dev", "test"],
    seed: int,
) -> KnownSteps:  # fmt: skip
    """Solutions of a split whose steps have a truth: `samples`, or a row of `steps`."""
    model = scorer.model
    if source == SAMPLES:
        problems = pools.read_split(DATA / f"samples/{settings.policy}/{seed}", split)
        chosen = step_solutions.choose_solutions(
            problems, scorer.decode, model.separator, settings.max_solutions_per_problem
        )
        rows = [row for row, _ in step_solutions.label_by_truth(chosen)]
    else:
        path = seed_folder(DATA / "steps" / source, seed) / "heldout.jsonl"
        rows = list(lines.read_lines(path, StepLabels))
    return step_error_metrics.select_known(
        rows,
        f"{split}: {source}",
        max_tokens=model.model.config.max_position_embeddings,
        leave_out_long=settings.leave_out_long,
    )


def render_report(seeds: Seeds, *, confidence: float) -> str:
    """The report; `confidence` of the intervals."""
    numbers = [f"seed {seed}" for seed in seeds]
    table_rows = []
    for name, label in {"model": "the process model", **RULES}.items():
        if estimates := [metrics[name]["f1"] for metrics in seeds.values() if name in metrics]:
            mean = 100 * fmean(estimate["value"] for estimate in estimates)
            table_rows.append([label, f"{mean:.1f}", *map(markdown.format_percent, estimates)])
    return studies.render(
        "step_errors", seeds=seeds, confidence=confidence, gains=[*describe_gains(seeds)],
        no_verdict=studies.explain_no_verdict(len(seeds)),
        f1=markdown.render_table(["found by", "mean", *numbers], table_rows),
        steps=markdown.render_table(["steps", *numbers], _steps(seeds)),
    )  # fmt: skip


def describe_gains(seeds: Seeds) -> Iterator[str]:
    """F1 of the process model minus that of each rule that reads no step, in words."""
    for name, words in RULES.items():
        if gains := [
            metrics[name]["model_f1_minus_this"] for metrics in seeds.values() if name in metrics
        ]:
            above = sum(difference["low"] > 0 for difference in gains)
            gain = 100 * fmean(difference["value"] for difference in gains)
            yield f"{gain:+.1f} points over `{words}` (above 0 in {above} seeds)"


def _steps(seeds: Seeds) -> Iterator[list[str]]:
    def row(label: str, numbers: Sequence[Any], form: str = "g") -> list[str]:
        return [label, *("none" if number is None else format(number, form) for number in numbers)]

    for name in ("steps", "wrong_share", "balanced_accuracy", "auroc", "brier"):
        numbers = [metrics["steps_to_first_error"][name] for metrics in seeds.values()]
        yield row(name.replace("_", " "), numbers)
    for name in ("solutions", "detected", "found"):
        numbers = [metrics["right_answer_wrong_process"].get(name) for metrics in seeds.values()]
        yield row(f"right answer, wrong step: {name}", numbers)
    lowest = [metrics["lowest_is_last"] for metrics in seeds.values()]
    yield row("lowest score at the last step", lowest, ".3f")


if __name__ == "__main__":
    adopt_rounding()
    process.run(main)
