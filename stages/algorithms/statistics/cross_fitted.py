"""Does a curve fall after its best point? Without the winner's curse."""

import numpy as np
from jaxtyping import Float


def change_after_best(
    values: Float[np.ndarray, "problem point"], *others: Float[np.ndarray, "problem point"]
) -> list[Float[np.ndarray, " problem"]]:
    """For each problem, a curve's last point minus its best point.

    The best point of a noisy curve is partly luck, so that on the same problems the last one
    would look worse even where the curve is level. Hence the best point is chosen on one half of
    the problems (the even rows) and the change is taken on the other (the odd rows), and the
    other way round: the mean is then unbiased for the change after points so chosen. Of points
    that tie the last is taken.

    Args:
        values: what the best point is chosen by; two problems at least.
        others: further quantities of the same problems and points, for their change from the
            same point to the last.

    Returns:
        The changes of `values`, then those of each of `others`.
    """
    num_problems, num_points = values.shape
    assert num_problems >= 2, "no halves of a single problem"
    rows = np.array(range(num_problems), dtype=np.int64)
    halves = rows % 2
    best = np.empty(num_problems, dtype=np.int64)
    for half in (0, 1):
        means = values[halves != half].mean(axis=0)
        best[halves == half] = num_points - 1 - int(means[::-1].argmax())
    return [array[:, -1] - array[rows, best] for array in (values, *others)]
