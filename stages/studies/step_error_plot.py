"""Plot and table: what a process model says before, at and after the first wrong step."""

import csv
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from stages.algorithms.statistics.calibration import equal_mass, reliability_bins
from stages.algorithms.statistics.error_detection import NO_ERROR
from stages.report import plots
from stages.studies.step_error_metrics import StepPrediction

FURTHEST = 3
"""Steps before and after the first error that are shown."""
NUM_BINS = 10


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
    with plots.figure(folder / "step_scores.png", width=9.0, height=3.8) as figure:
        left, right = figure.subplots(1, 2)
        _places(left, places, rows, threshold)
        _reliability(right, rows)


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


def _places(
    axes: Axes, places: Sequence[Place], rows: Sequence[StepPrediction], threshold: float
) -> None:
    axes.plot(
        [place.offset for place in places],
        [place.score for place in places],
        color=plots.RED,
        marker="o",
        label="erroneous solutions",
    )
    correct = [score for row in rows if row.first_error == NO_ERROR for score in row.scores]
    if correct:
        mean = fmean(correct)
        axes.axhline(mean, color=plots.BLUE, label="correct solutions, all steps")
    axes.axhline(threshold, color=plots.GREY, linestyle=":", label="threshold, from dev")
    axes.set_xticks([place.offset for place in places])
    axes.set_ylim(0, 1)
    axes.set_xlabel("steps after the first error")
    axes.set_ylabel("mean P(right)")
    axes.set_title("Score around the first error")
    axes.legend()


def _reliability(axes: Axes, rows: Sequence[StepPrediction]) -> None:
    scores, right = [], []
    for row in rows:
        end = len(row.scores) if row.first_error == NO_ERROR else row.first_error + 1
        scores += row.scores[:end]
        right += [float(step != row.first_error) for step in range(end)]
    bins = reliability_bins(
        np.array(scores), np.array(right), num_bins=NUM_BINS, binning=equal_mass
    )
    axes.plot([0, 1], [0, 1], color=plots.GREY, linestyle=":", label="calibrated")
    axes.plot(
        [one.confidence for one in bins],
        [one.accuracy for one in bins],
        color=plots.GREEN,
        marker="o",
        label="steps up to the first error",
    )
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_xlabel("mean P(right)")
    axes.set_ylabel("share right")
    axes.set_title("Reliability")
    axes.legend()
