"""Metrics of a process model on solutions with known wrong steps, beside trivial baselines."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from stages.algorithms.statistics import error_detection
from stages.algorithms.statistics.error_detection import NO_ERROR, first_below
from stages.algorithms.statistics.intervals import problem_numbers
from stages.algorithms.statistics.score_quality import auc, balanced_accuracy
from stages.records.metrics import with_interval
from stages.records.steps import StepLabels, shared_prompts

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, kw_only=True, slots=True)
class StepPrediction:
    """One row of `data/studies/step_errors/rows/<seed>/predictions.jsonl`."""

    id: str
    index: int
    """The completion's index, as in steps.jsonl."""
    scores: list[float]
    """P(right) of each step whose truth is known."""
    predicted: int
    """First step that is predicted to be wrong; -1: none."""
    first_error: int
    """First step that is wrong; -1: none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownSteps:
    """Solutions that a model can read, with their first errors."""

    rows: Sequence[StepLabels]
    first_errors: Sequence[int]
    """The first wrong step of each, or -1."""
    left_out_long: int
    """Rows with more tokens than the model has positions."""


def find_first_error(row: StepLabels) -> int:
    """First wrong step, -1 if all are right; a ValueError if the truth is not known."""
    if row.true_labels is None or len(row.true_labels) != len(row.steps):
        raise ValueError(
            f"problem '{row.id}', completion {row.index} ({row.source}): expected `true_labels`, "
            f"one per step, found {row.true_labels}. Evaluate on steps whose truth is known: "
            f"samples of the generated problems, or ProcessBench."
        )
    truth = select_marked(row, row.true_labels)
    return truth.index(False) if False in truth else NO_ERROR


def select_marked(row: StepLabels, values: Sequence[ValueT]) -> list[ValueT]:
    """The values at the ends of the steps that people marked; see `step_files.cut`."""
    pairs = zip(values, row.true_labels or (), strict=True)
    return [value for value, right in pairs if right is not None]


def select_known(
    rows: Sequence[StepLabels], where: str, *, max_tokens: int, leave_out_long: bool
) -> KnownSteps:
    """The rows that a model can read; longer ones are left out and counted, or are an error.

    The model reads the prompt and the steps, each with a step token.
    """
    lengths = [len(row.prompt_ids) + sum(len(ids) + 1 for ids in row.step_ids) for row in rows]
    fitting = [row for row, length in zip(rows, lengths, strict=True) if length <= max_tokens]
    num_long = len(rows) - len(fitting)
    if num_long and not leave_out_long:
        raise ValueError(
            f"{where}: {num_long} of {len(rows)} solutions have more tokens than the {max_tokens} "
            f"positions of the model, up to {max(lengths)}. Take a model with more, "
            f"or leave them out: step_errors.leave_out_long."
        )
    first_errors = [find_first_error(row) for row in fitting]
    return KnownSteps(rows=fitting, first_errors=first_errors, left_out_long=num_long)


def check_apart(dev: KnownSteps, test: KnownSteps) -> None:
    """Raise a ValueError if a problem is in both: the threshold would be chosen on test data."""
    shared = shared_prompts(dev.rows, test.rows)
    if shared:
        raise ValueError(
            f"expected other problems for dev than for test, found {len(shared)} in both, such as "
            f"{min(shared)!r:.80}: the threshold would be chosen on the test. Name another dev."
        )


def predict_by_rules(rows: Sequence[StepLabels]) -> dict[str, list[int]]:
    """Predictions by rules that ignore the steps.

    always_correct: -1. outcome_and_middle: -1 if the final answer is right, else the middle step,
    (n - 1) // 2; only if the correctness of every final answer is known.
    """
    predictions = {"always_correct": [NO_ERROR] * len(rows)}
    if all(row.correct is not None for row in rows):
        predictions["outcome_and_middle"] = [
            NO_ERROR if row.correct else (len(select_marked(row, row.steps)) - 1) // 2
            for row in rows
        ]
    return predictions


def summarise_predictions(
    solutions: KnownSteps,
    scores: Sequence[Sequence[float]],
    threshold: float,
    **options: Any,
) -> dict[str, Any]:
    """Accuracies and F1 of the model and of the baselines, and metrics of single steps.

    A problem is a prompt: the bootstrap draws rows of one prompt together. `scores`: P(right) of
    each step; `options`: of the intervals, see `error_detection.accuracy_intervals`.
    """
    rows, truth = solutions.rows, np.array(solutions.first_errors)
    problems = problem_numbers([row.prompt for row in rows])
    predicted = [first_below(step_scores, threshold) for step_scores in scores]
    erroneous = int((truth != NO_ERROR).sum())
    metrics: dict[str, Any] = {"solutions": len(rows), "problems": int(problems.max()) + 1}
    metrics |= {"erroneous": erroneous, "correct": len(rows) - erroneous}
    for name, answers in {"model": predicted, **predict_by_rules(rows)}.items():
        numbers = np.array(answers)
        estimates = error_detection.accuracy_intervals(numbers, truth, problems, **options)
        metrics[name] = {key: with_interval(*value) for key, value in estimates.items()}
        if name != "model":
            above = error_detection.accuracy_intervals(
                np.array(predicted), truth, problems, baseline=numbers, **options
            )
            metrics[name]["model_f1_minus_this"] = with_interval(*above["f1"])
    return metrics | {
        "steps_to_first_error": steps_to_first_error(scores, solutions.first_errors, threshold),
        "right_answer_wrong_process": right_answer_wrong_process(solutions, predicted),
    }


def steps_to_first_error(
    scores: Sequence[Sequence[float]], first_errors: Sequence[int], threshold: float
) -> dict[str, Any]:
    """Balanced accuracy, AUROC over all steps, and Brier score, mean (P(right) - truth)^2.

    Steps after the first error are not counted: people did not label them, and they build on the
    error.
    """
    labelled, is_right = list[float](), list[bool]()
    for step_scores, first in zip(scores, first_errors, strict=True):
        end = len(step_scores) if first == NO_ERROR else first + 1
        labelled += step_scores[:end]
        is_right += [step != first for step in range(end)]
    probabilities, right = np.array(labelled), np.array(is_right)
    numbers = {
        "balanced_accuracy": balanced_accuracy(probabilities, right, threshold=threshold),
        "auroc": auc(probabilities, right),
        "brier": float(((probabilities - right) ** 2).mean()),
    }
    return {"steps": len(labelled), "wrong_share": round(1 - float(right.mean()), 6)} | {
        name: None if value is None else round(value, 6) for name, value in numbers.items()
    }


def right_answer_wrong_process(
    solutions: KnownSteps, predicted: Sequence[int]
) -> dict[str, float | int]:
    """Detection of wrong solutions with a right final answer, which no outcome reveals.

    `detected`: share in which any step is predicted wrong; `found`: in which the first wrong step
    is predicted exactly. Both are absent if there is no such solution.
    """
    every = zip(solutions.rows, solutions.first_errors, predicted, strict=True)
    right_answers = [
        (first, answer) for row, first, answer in every if row.correct and first != NO_ERROR
    ]
    if not right_answers:
        return {"solutions": 0}
    detected = sum(answer != NO_ERROR for _, answer in right_answers) / len(right_answers)
    share = sum(answer == first for first, answer in right_answers) / len(right_answers)
    return {
        "solutions": len(right_answers),
        "detected": round(detected, 6),
        "found": round(share, 6),
    }
