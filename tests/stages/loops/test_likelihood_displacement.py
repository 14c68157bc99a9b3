import pytest

from stages.loops.likelihood_displacement import both_fell, late_mean


def history(chosen, rejected):
    return [
        {"log_ratios/chosen": c, "log_ratios/rejected": r}
        for c, r in zip(chosen, rejected, strict=True)
    ]


@pytest.mark.parametrize(
    ("chosen", "rejected", "expected"),
    [
        (-2.0, -5.0, True),
        (2.0, -5.0, False),
        (-2.0, 5.0, False),
        (2.0, 5.0, False),
        (-0.05, -5.0, False),  # less than a tenth of a nat
    ],
)
def test_it_is_told_only_where_both_end_below_the_reference(chosen, rejected, expected):
    assert both_fell(history([0.0, 0.5 * chosen, chosen], [0.0, 0.5, rejected])) is expected


def test_only_the_end_counts():
    fell_and_rose = [-3.0] * 18 + [1.0, 1.0]
    assert not both_fell(history(fell_and_rose, [-3.0] * 20))


def test_the_late_mean_is_of_the_last_tenth_of_the_steps_that_have_it():
    steps = [{"a": float(i)} for i in range(20)]
    assert late_mean(steps, "a") == 18.5
    assert late_mean([*steps, {"b": 7.0}], "a") == 18.5
    assert late_mean([*steps, {"b": 7.0}], "b") == 7.0


def test_without_a_number_nothing_is_told():
    assert late_mean([], "a") is None
    assert not both_fell([])
    assert not both_fell([{"log_ratios/chosen": -2.0}])
