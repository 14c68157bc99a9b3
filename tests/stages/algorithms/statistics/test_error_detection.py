import itertools

import numpy as np
import pytest

from stages.algorithms.statistics.error_detection import (
    accuracy_intervals,
    best_threshold,
    first_below,
    harmonic_mean,
)

OPTIONS = {"num_resamples": 500, "confidence": 0.95, "seed": 0}


def found(predicted, truth, problems=None, **changes):
    numbers = range(len(truth)) if problems is None else problems
    return accuracy_intervals(
        *map(np.array, (predicted, truth, list(numbers))), **OPTIONS | changes
    )


def test_the_first_score_below_the_threshold():
    scores = (0.9, 0.4, 0.2)
    assert [first_below(scores, t) for t in (1.0, 0.5, 0.4, 0.3, 0.2)] == [0, 1, 2, 2, -1]


def test_the_harmonic_mean_of_nothing_is_nothing():
    means = harmonic_mean(np.array([0.0, 0.5, 1.0, 0.2]), np.array([0.0, 0.5, 0.0, 0.6]))
    assert means == pytest.approx([0, 0.5, 0, 0.3])


def test_accuracies_and_f1_by_hand():
    # erroneous: found, wrong step, none found, found; correct: none found, one found
    result = found([1, 0, -1, 3, -1, 2], [1, 2, 0, 3, -1, -1])
    assert result["error_accuracy"].value == 0.5
    assert result["correct_accuracy"].value == 0.5
    assert result["f1"].value == 0.5
    result = found([1, 2, -1, 0], [1, 2, 0, -1])
    assert [result[name].value for name in result] == pytest.approx([2 / 3, 0, 0])


def test_one_answer_to_everything_has_f1_zero():
    truth = [0, 1, -1, -1]
    assert found([-1] * 4, truth)["f1"] == (0.0, 0.0, 0.0)
    assert found([-1] * 4, truth)["correct_accuracy"] == (1.0, 1.0, 1.0)
    assert found([0] * 4, truth)["f1"].value == 0.0


def test_the_bounds_are_the_quantiles_of_all_draws_of_problems():
    # Solutions 0 and 1 are of one problem and are drawn together.
    predicted, truth, problems = [0, 1, -1, 0], [0, 0, -1, -1], [0, 0, 1, 2]
    values = []
    for draw in itertools.product(range(3), repeat=3):
        rows = [row for problem in draw for row in range(4) if problems[row] == problem]
        wrong = [predicted[r] == truth[r] for r in rows if truth[r] != -1]
        right = [predicted[r] == truth[r] for r in rows if truth[r] == -1]
        if wrong and right:
            e, c = np.mean(wrong), np.mean(right)
            values.append(2 * e * c / (e + c) if e + c else 0.0)
    result = found(predicted, truth, problems, num_resamples=20_000, confidence=0.5)["f1"]
    assert result.value == 0.5
    assert result.low == pytest.approx(np.quantile(values, 0.25))
    assert result.high == pytest.approx(np.quantile(values, 0.75))


def test_a_difference_is_paired():
    stream = np.random.default_rng(0)
    truth = np.where(np.arange(400) % 2, -1, 1)
    worse = np.where(stream.random(400) < 0.5, truth, 0)
    better = np.where(stream.random(400) < 0.1, truth, worse)
    same = found(worse, truth, baseline=worse)["f1"]
    assert same == (0.0, 0.0, 0.0)
    paired = found(better, truth, baseline=worse)["f1"]
    higher, other = (found(answers, truth)["f1"] for answers in (better, worse))
    assert paired.value == pytest.approx(higher.value - other.value)
    assert paired.high - paired.low < 0.5 * (higher.high - higher.low)


@pytest.mark.parametrize("truth", [[-1, -1], [0, 1]])
def test_an_f1_needs_erroneous_and_correct_solutions(truth):
    with pytest.raises(ValueError, match="expected erroneous and correct solutions"):
        found([0, 0], truth)


def f1(scores: list[list[float]], truth: list[int], threshold: float) -> float:
    """By definition, a threshold at a time."""
    hits = [
        first_below(item, threshold) == first for item, first in zip(scores, truth, strict=True)
    ]
    wrong = [hit for hit, first in zip(hits, truth, strict=True) if first != -1]
    right = [hit for hit, first in zip(hits, truth, strict=True) if first == -1]
    e, c = float(np.mean(wrong)), float(np.mean(right))
    return 2 * e * c / (e + c) if e + c else 0.0


def test_the_middle_of_the_gap_that_tells_both():
    assert best_threshold([[0.9, 0.4], [0.8, 0.6]], [1, -1]) == (0.5, 1.0)


def test_of_gaps_with_the_same_f1_the_widest_is_taken():
    # (0.2, 0.3] and (0.4, 0.9] find one of both errors and keep the correct one.
    scores = [[0.95, 0.2, 0.1], [0.9, 0.3], [0.4, 0.4], [0.95, 0.95]]
    chosen = best_threshold(scores, [1, 1, 1, -1])
    assert chosen.threshold == pytest.approx(0.6)
    assert chosen.f1 == pytest.approx(f1(scores, [1, 1, 1, -1], 0.6)) == pytest.approx(0.8)


def test_no_threshold_of_a_fine_grid_is_better():
    stream = np.random.default_rng(0)
    for _ in range(30):
        scores = [stream.random(stream.integers(1, 6)).round(2).tolist() for _ in range(12)]
        truth = [int(stream.integers(-1, len(score))) for score in scores]
        truth[:2] = [-1, 0]
        chosen = best_threshold(scores, truth)
        assert chosen.f1 == pytest.approx(f1(scores, truth, chosen.threshold))
        tried = [f1(scores, truth, float(t)) for t in np.linspace(0, 1.01, 203)]
        assert chosen.f1 >= max(tried) - 1e-12


@pytest.mark.parametrize(
    ("scores", "truth"),
    [
        ([[0.0], [0.0, 0.0]], [0, -1]),  # nothing is told apart, and 0 is the lowest score
        ([[1.0], [1.0, 1.0]], [0, -1]),
        ([[0.5, 0.5], [0.5]], [1, -1]),  # an earlier step scores as low
        ([[1.0], [0.9]], [0, -1]),
    ],
)
def test_where_nothing_can_be_told_the_f1_is_zero(scores, truth):
    chosen = best_threshold(scores, truth)
    assert chosen.f1 == 0.0 == f1(scores, truth, chosen.threshold)


def test_neighbouring_numbers_are_told_apart():
    low = 0.5
    high = float(np.nextafter(low, 1))
    chosen = best_threshold([[low], [high]], [0, -1])
    assert (chosen.f1, f1([[low], [high]], [0, -1], chosen.threshold)) == (1.0, 1.0)


@pytest.mark.parametrize("truth", [[-1, -1], [0, 0]])
def test_it_needs_erroneous_and_correct_solutions(truth):
    with pytest.raises(ValueError, match="to choose a threshold on"):
        best_threshold([[0.5], [0.5]], truth)
