"""How good labels and rewards are, as their own stages measured it on held-out problems."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from stages.report.costs import Plan
from stages.report.estimates import rounded
from stages.report.results import read_json

Kind = Literal["count", "percent", "number"]
MEASURES: dict[str, dict[str, tuple[Kind, list[str]]]] = {
    "pairs": {
        "pairs": ("count", ["train/pairs"]),
        "held out": ("count", ["heldout/pairs"]),
        "agree with the answer checker": ("percent", ["train/agreement/averaged"]),
        "same verdict in both orders": ("percent", ["train/swap_consistency"]),
        "the first is preferred": ("percent", ["train/first_position_rate"]),
        "the longer is preferred": ("percent", ["train/longer_wins_rate"]),
    },
    "steps": {
        "solutions": ("count", ["train/solutions"]),
        "steps": ("count", ["train/steps"]),
        "labelled right": ("percent", ["train/labelled_right"]),
        "truly right": ("percent", ["train/truly_right"]),
        "right answers with a wrong step": ("percent", ["train/right_answers_with_a_wrong_step"]),
    },
    "rewards": {
        "learned from": ("count", ["pairs", "completions", "solutions"]),
        "accuracy": ("percent", ["heldout/accuracy", "heldout/labels/balanced_accuracy"]),
        "at equal length": ("percent", ["heldout/length_matched_accuracy"]),
        "AUC in a problem": ("number", ["heldout/auc", "heldout/labels/auroc_within_problem"]),
        "negative log-likelihood": (
            "number",
            ["heldout/negative_log_likelihood", "heldout/labels/negative_log_likelihood"],
        ),
        "calibration error": ("number", ["heldout/expected_calibration_error"]),
    },
}
"""Table -> measure -> how it is written, and where it stands in a metrics.json: the first that is
there. Of process models accuracy is over steps, the mean of that on right and on wrong ones."""


def measure(data: Path, plan: Plan, seeds: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Table -> row -> measure -> `{value, seeds}`, what is there; rules have nothing."""
    found: dict[str, dict[str, Any]] = {}
    for table, measures in MEASURES.items():
        for name in plan[table]:
            paths = {seed: data / table / name / str(seed) / "metrics.json" for seed in seeds}
            if not all(path.exists() for path in paths.values()):
                continue
            metrics = {seed: read_json(path) for seed, path in paths.items()}
            row: dict[str, Any] = {}
            for label, (_, places) in measures.items():
                values = {str(seed): number(one, places) for seed, one in metrics.items()}
                known = [value for value in values.values() if value is not None]
                if len(known) == len(values):
                    row[label] = {"value": rounded(fmean(known)), "seeds": values}
            found.setdefault(table, {})[name] = row
    return found


def number(metrics: Mapping[str, Any], places: Sequence[str]) -> float | None:
    """The first number there is at one of the places, with or without an interval."""
    for place in places:
        one: Any = metrics
        for key in place.split("/"):
            one = one.get(key) if isinstance(one, Mapping) else None
        if isinstance(one, Mapping):
            one = one.get("value")
        if one is not None:
            return float(one)
    return None
