"""How well a process reward model finds the first wrong step, beside trivial baselines.

    python -m stages.evaluate_process_reward <name> <model> <dev> <test>

Reads a process model and two folders of steps whose truth is known (`label_steps` of generated
problems, or ProcessBench by `import_steps`). The first error found is the first step whose
P(right) is below a threshold, chosen on dev for the best F1 and frozen: no number of the test
rows has a part in it. Metrics after "ProcessBench" (Zheng et al. 2024),
https://arxiv.org/abs/2412.06559; departure: for scalar models they choose the threshold on
the GSM8K part of the benchmark that they report.
"""

from pathlib import Path
from typing import Any

from pydantic import Field

from stages import params
from stages.algorithms.statistics.error_threshold import best_threshold
from stages.loops import process_summary, step_targets
from stages.models import model_tokenizer, process_head
from stages.models.device import ComputeConfig, setup
from stages.params import Params
from stages.records import known_steps, lines
from stages.reports import process_evaluation, step_scores_plot
from stages.runtime import outputs, process, runs
from stages.seeding import derive

DATA = Path("data")
OUTPUT = DATA / "evaluate_process_reward"


class EvaluateProcessReward(Params):
    """What is estimated and how sure we are of it."""

    leave_out_long: bool
    """Whether solutions with more tokens than the model has positions are left out and counted;
    false: they are an error."""
    num_bootstrap: int = Field(ge=100)
    """Resamples of the problems for each interval."""
    confidence: float = Field(gt=0, lt=1)
    """Coverage of the intervals."""


class Config(Params):
    """What evaluate_process_reward reads of params.yaml."""

    seed: int
    compute: ComputeConfig
    evaluate_process_reward: EvaluateProcessReward


def main(name: str, model_of: str, dev_of: str, test_of: str) -> None:
    """Write `metrics.json`, `predictions.jsonl` and `plots/`."""
    output = OUTPUT / name
    with runs.start(f"evaluate_process_reward@{name}", output, gpu=True) as run:
        config = params.load(Config)
        section, compute = config.evaluate_process_reward, config.compute
        model = process_head.load(DATA / model_of, compute, setup(compute))
        pad_id = model_tokenizer.pad_id(model_tokenizer.load(DATA / model_of))
        dev, test = (
            known_steps.read(
                DATA / folder / "steps.jsonl",
                max_tokens=model.config.max_position_embeddings,
                leave_out_long=section.leave_out_long,
            )
            for folder in (dev_of, test_of)
        )
        known_steps.check_apart(dev, test)
        dev_scores, scores = (
            process_head.step_scores(model, step_targets.solutions(one.rows), compute, pad_id)
            for one in (dev, test)
        )
        process_evaluation.check_scores(dev.rows, dev_scores)
        chosen = best_threshold(dev_scores, dev.first_errors)
        metrics: dict[str, Any] = {"generated_tokens": 0, "trained_tokens": 0}
        metrics |= {"threshold": round(chosen.threshold, 6), "dev_f1": round(chosen.f1, 6)}
        metrics |= {"dev_solutions": len(dev.rows), "dev_left_out_long": dev.left_out_long}
        metrics["left_out_long"] = test.left_out_long
        metrics |= process_evaluation.summarise(
            test.rows,
            scores,
            chosen.threshold,
            num_resamples=section.num_bootstrap,
            confidence=section.confidence,
            seed=derive(config.seed, "evaluate_process_reward"),
        )
        metrics["lowest_is_last"] = process_summary.lowest_is_last(scores)
        f1 = {f"f1/{key}": value for key, value in metrics["model"]["f1"].items()}
        run.log(0, {"threshold": chosen.threshold, "dev_f1": chosen.f1, **f1})
        predictions = process_evaluation.predictions(test.rows, scores, chosen.threshold)
        with outputs.replace(output / "predictions.jsonl") as temporary:
            lines.write(temporary, predictions)
        with outputs.replace(output / "plots") as temporary:
            step_scores_plot.write(temporary, predictions, chosen.threshold)
        outputs.write_json(output / "metrics.json", metrics)


if __name__ == "__main__":
    process.run(main)
