from stages.records.pools import Rollout
from stages.reports import learning_curve, learning_curves_plot


def rollout(step: int, reward: float, *, correct: bool, cut: bool = False) -> Rollout:
    return Rollout(
        step=step,
        id="p",
        index=0,
        completion="",
        completion_ids=[1] * (4 if cut else 2),
        finish_reason="length" if cut else "stop",
        reward=reward,
        correct=correct,
    )


def test_a_point_holds_the_means_of_its_step():
    rows = [
        rollout(1, 1.0, correct=True),
        rollout(0, -1.0, correct=False),
        rollout(0, 2.0, correct=True, cut=True),
    ]
    first, second = learning_curve.points(rows)
    assert (first.step, first.num_rollouts, first.reward, first.accuracy) == (0, 2, 0.5, 0.5)
    assert (first.tokens, first.truncation_rate) == (3.0, 0.5)
    assert (second.step, second.num_rollouts, second.reward, second.accuracy) == (1, 1, 1.0, 1.0)


def test_smoothing_keeps_a_straight_line_in_the_middle_and_a_constant_everywhere():
    line = [float(i) for i in range(20)]
    assert learning_curves_plot.smooth(line)[4:16] == line[4:16]
    assert learning_curves_plot.smooth([3.0] * 5) == [3.0] * 5
