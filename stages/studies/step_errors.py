"""Study: does a process reward model find the first wrong step, and would a trivial rule too?

    dvc repro stages/studies/dvc.yaml:step_errors

The first error found is the first step whose P(right) is below a threshold, chosen on dev for the
best F1 and frozen: no number of the test solutions has a part in it. Solutions are a policy's
samples of generated problems, whose truth is known, or a row of `steps` with people's marks
(ProcessBench). Metrics after "ProcessBench" (Zheng et al. 2024), https://arxiv.org/abs/2412.06559;
departure: for scalar models they choose the threshold on the GSM8K part of the benchmark that they
report.
"""

from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from stages.algorithms.statistics.error_detection import best_threshold, first_below
from stages.loops import process_reward, training
from stages.models import model_tokenizer, policy, process_head
from stages.models.device import ComputeConfig, setup
from stages.params import Params
from stages.records import lines, pools
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.records.steps import StepLabels
from stages.rewards import reward_file, step_solutions
from stages.rows import DATA, PROMPTS
from stages.runtime import outputs, process
from stages.runtime.seeds import SeedRun
from stages.seeding import derive
from stages.studies import step_error_metrics, step_error_report
from stages.studies import study as studies
from stages.studies.step_error_metrics import KnownSteps, StepPrediction

SAMPLES = "samples"


class StepErrors(Params):
    """Whose steps are judged by what, and how sure we are of it."""

    process: str
    """A row of `rewards`, of the kind process."""
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
    num_bootstrap: int = Field(ge=100)
    """Resamples of the problems for each interval."""
    confidence: float = Field(gt=0, lt=1)
    """Coverage of the intervals."""


class Config(Params):
    """What the study reads."""

    seeds: list[int]
    compute: ComputeConfig
    step_errors: StepErrors


def main() -> None:
    """Write the rows of each seed, `metrics.json`, `report.md` and `plots/`."""
    with studies.start("step_errors") as study:
        config = studies.load(Config, "step_errors")
        found = study.for_each_seed(config.seeds, partial(evaluate, config))
        for seed, metrics in found.items():
            path = study.rows / str(seed) / "predictions.jsonl"
            predictions = list(lines.read(path, StepPrediction))
            step_error_report.write(study.plots / str(seed), predictions, metrics["threshold"])
        report = step_error_report.render(found, confidence=config.step_errors.confidence)
        study.write({str(seed): metrics for seed, metrics in found.items()}, report)


def evaluate(config: Config, run: SeedRun, folder: Path) -> dict[str, Any]:
    """The process model of one seed."""
    settings, compute = config.step_errors, config.compute
    path = reward_file.model(DATA / "rewards" / settings.process, run.seed)
    model = process_head.load(path, compute, setup(compute))
    tokenizer = model_tokenizer.load(path)
    pad_id, decode = model_tokenizer.pad_id(tokenizer), policy.decoder(tokenizer)

    def solutions(word: str, split: Literal["dev", "test"]) -> KnownSteps:
        if word == SAMPLES:
            samples = DATA / f"samples/{settings.policy}/{run.seed}/{split}.jsonl"
            prompts = lines.read(PROMPTS / f"{split}.jsonl", Prompt)
            problems = pools.by_problem(prompts, lines.read(samples, Completion))
            most, separator = settings.max_solutions_per_problem, model.config.step_separator
            chosen = step_solutions.choose_solutions(problems, decode, separator, most)
            rows = [row for row, _ in step_solutions.known(chosen)]
        else:
            source = training.per_seed(DATA / "steps" / word, run.seed)
            rows = list(lines.read(source / "heldout.jsonl", StepLabels))
        return step_error_metrics.known(
            rows,
            f"{split}: {word}",
            max_tokens=model.config.max_position_embeddings,
            leave_out_long=settings.leave_out_long,
        )

    dev, test = solutions(settings.dev, "dev"), solutions(settings.test, "test")
    step_error_metrics.check_apart(dev, test)
    dev_scores, scores = (
        process_head.step_scores(model, process_reward.solutions(one.rows), compute, pad_id)
        for one in run.track([dev, test])
    )
    step_error_metrics.check_scores(dev.rows, dev_scores)
    chosen = best_threshold(dev_scores, dev.first_errors)
    metrics: dict[str, Any] = {
        "threshold": round(chosen.threshold, 6),
        "dev_f1": round(chosen.f1, 6),
        "dev_solutions": len(dev.rows),
        "dev_left_out_long": dev.left_out_long,
        "left_out_long": test.left_out_long,
        **step_error_metrics.summarise(
            test.rows,
            scores,
            chosen.threshold,
            num_resamples=settings.num_bootstrap,
            confidence=settings.confidence,
            seed=derive(run.seed, "step_errors"),
        ),
        "lowest_is_last": process_reward.lowest_is_last(scores),
    }
    predictions = [
        StepPrediction(
            id=row.id,
            index=row.index,
            scores=[round(score, 6) for score in own],
            predicted=first_below(own, chosen.threshold),
            first_error=first,
        )
        for row, own, first in zip(test.rows, scores, test.first_errors, strict=True)
    ]
    lines.write(folder / "predictions.jsonl", predictions)
    outputs.write_json(folder / "metrics.json", metrics)
    return metrics


if __name__ == "__main__":
    process.run(main)
