import numpy as np

from stages.algorithms.statistics.problem_means import problem_means, problem_numbers


def test_rows_of_a_problem_are_averaged_wherever_they_stand():
    numbers = problem_numbers(["b", "a", "b"])
    assert numbers.tolist() == [0, 1, 0]
    values = np.array([[1.0, 4.0], [0.0, 1.0], [0.0, 2.0]])
    assert problem_means(values, numbers).tolist() == [[0.5, 3.0], [0.0, 1.0]]


def test_a_problem_without_rows_is_absent():
    assert problem_means(np.array([[1.0], [3.0]]), np.array([5, 2])).tolist() == [[3.0], [1.0]]


def test_no_rows_are_no_problems():
    assert problem_means(np.zeros((0, 2)), np.zeros(0, dtype=np.int64)).shape == (0, 2)
