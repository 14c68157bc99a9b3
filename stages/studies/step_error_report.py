"""How well a process model finds first errors: the report (Markdown), a plot and a table a seed."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from stages.algorithms.statistics.error_detection import NO_ERROR
from stages.algorithms.statistics.score_quality import equal_mass, reliability_bins
from stages.report import plots
from stages.studies import markdown
from stages.studies.step_error_metrics import StepPrediction, up_to_first_error

Metrics = Mapping[str, Any]
RULES = {
    "outcome_and_middle": "no error where the answer is right, else the middle step",
    "always_correct": "no error anywhere",
}
FURTHEST = 3
"""Steps before and after the first error that are shown."""


class Place(NamedTuple):
    """Mean score of the steps so many places after the first error (before: negative)."""

    offset: int
    score: float
    steps: int


def write(folder: Path, rows: Sequence[StepPrediction], threshold: float) -> None:
    """Write `step_scores.png` and `step_scores.csv` into a new folder."""
    folder.mkdir()
    places = around_first_error(rows)
    with (folder / "step_scores.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Place._fields)
        writer.writerows((place.offset, round(place.score, 6), place.steps) for place in places)
    correct = [score for row in rows if row.first_error == NO_ERROR for score in row.scores]
    scores, right = up_to_first_error(
        [row.scores for row in rows], [row.first_error for row in rows]
    )
    bins = reliability_bins(scores, right.astype(np.float64), num_bins=10, binning=equal_mass)
    with plots.figure(folder / "step_scores.png", width=9.0, height=3.8) as figure:
        left, axes = figure.subplots(1, 2)
        offsets, means, _ = zip(*places, strict=True) if places else ((), (), ())
        left.plot(offsets, means, color=plots.RED, marker="o", label="erroneous solutions")
        if correct:
            mean = fmean(correct)
            left.axhline(mean, color=plots.BLUE, label="correct solutions, all steps")
        left.axhline(threshold, color=plots.GREY, linestyle=":", label="threshold, from dev")
        left.set(title="Score around the first error", xticks=offsets, ylim=(0, 1))
        left.set(xlabel="steps after the first error", ylabel="mean P(right)")
        left.legend()
        axes.plot([0, 1], [0, 1], color=plots.GREY, linestyle=":", label="calibrated")
        axes.plot(
            [one.confidence for one in bins],
            [one.accuracy for one in bins],
            color=plots.GREEN,
            marker="o",
            label="steps up to the first error",
        )
        axes.set(title="Reliability", xlim=(0, 1), ylim=(0, 1))
        axes.set(xlabel="mean P(right)", ylabel="share right")
        axes.legend()


def around_first_error(rows: Sequence[StepPrediction]) -> list[Place]:
    """Mean scores by distance from the first error, of erroneous solutions."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if row.first_error != NO_ERROR:
            for step, score in enumerate(row.scores):
                found.setdefault(step - row.first_error, []).append(score)
    return [
        Place(offset, fmean(found[offset]), len(found[offset]))
        for offset in sorted(found)
        if abs(offset) <= FURTHEST
    ]


def render(seeds: Mapping[int, Metrics], *, confidence: float) -> str:
    """The report, of each seed the content of its metrics.json; `confidence` of the intervals."""
    numbers = [f"seed {seed}" for seed in seeds]
    parts = [
        "# First wrong steps",
        verdict(seeds),
        f"F1 of the shares of erroneous and of correct solutions that are told rightly, in "
        f"per cent, with {confidence:.0%} intervals over problems:",
        markdown.table(["found by", "mean", *numbers], _rows(seeds)),
        "Steps up to the first error, where a threshold calls them wrong or right:",
        markdown.table(["steps", *numbers], _steps(seeds)),
        *(f"![seed {seed}](plots/{seed}/step_scores.png)" for seed in seeds),
    ]
    return "\n\n".join(parts) + "\n"


def verdict(seeds: Mapping[int, Metrics]) -> str:
    """Against the best rule that reads no step, in a sentence."""
    told = []
    for name, words in RULES.items():
        own = [one[name]["model_f1_minus_this"] for one in seeds.values() if name in one]
        if own:
            above = sum(one["low"] > 0 for one in own)
            gain = 100 * fmean(one["value"] for one in own)
            told.append(f"{gain:+.1f} points over `{words}` (above 0 in {above} seeds)")
    return f"Over {len(seeds)} seeds the process model's F1 is {'; '.join(told)}."


def _rows(seeds: Mapping[int, Metrics]) -> Iterator[list[str]]:
    for name, told in {"model": "the process model", **RULES}.items():
        own = [one[name]["f1"] for one in seeds.values() if name in one]
        if own:
            mean = 100 * fmean(one["value"] for one in own)
            yield [told, f"{mean:.1f}", *map(markdown.percent, own)]


def _steps(seeds: Mapping[int, Metrics]) -> Iterator[list[str]]:
    def row(label: str, numbers: Sequence[Any], form: str = "g") -> list[str]:
        return [label, *("none" if one is None else format(one, form) for one in numbers)]

    for name in ("steps", "wrong_share", "balanced_accuracy", "auroc", "brier"):
        numbers = [one["steps_to_first_error"][name] for one in seeds.values()]
        yield row(name.replace("_", " "), numbers)
    for name in ("solutions", "detected", "found"):
        numbers = [one["right_answer_wrong_process"].get(name) for one in seeds.values()]
        yield row(f"right answer, wrong step: {name}", numbers)
    lowest = [one["lowest_is_last"] for one in seeds.values()]
    yield row("lowest score at the last step", lowest, ".3f")
