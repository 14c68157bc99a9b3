import numpy as np
import pytest

from stages.algorithms.statistics.error_threshold import best_threshold
from stages.algorithms.statistics.first_error import first_below


def f1(scores: list[list[float]], truth: list[int], threshold: float) -> float:
    """By definition, a threshold at a time."""
    hits = [first_below(own, threshold) == first for own, first in zip(scores, truth, strict=True)]
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
        truth = [int(stream.integers(-1, len(own))) for own in scores]
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
