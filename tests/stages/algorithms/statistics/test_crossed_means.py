import numpy as np
import pytest
import synthetic_pools

from stages.algorithms.statistics.crossed_means import (
    PowerDesign,
    VarianceComponents,
    collapse_clusters,
    detectable_difference,
    estimate_means,
    holm_adjusted,
    required_sizes,
)


def one(values, confidence=0.95):
    result = estimate_means(np.array(values, dtype=np.float64)[..., None], confidence=confidence)
    components = result.components
    numbers = {name: float(column[0]) for name, column in result._asdict().items()
               if name != "components"}  # fmt: skip
    return numbers | {name: float(column[0]) for name, column in components._asdict().items()}


def test_seeds_that_differ_and_nothing_else():
    # mean squares: seeds 2 (4 + 0 + 4) / 2 = 8, problems 0, residual 0; 2 degrees of freedom
    result = one([[0, 0], [2, 2], [4, 4]])
    assert result["value"] == 2.0
    assert result["standard_error"] == pytest.approx((8 / 6) ** 0.5)
    assert result["degrees"] == pytest.approx(2.0)
    assert result["high"] - 2.0 == pytest.approx(4.302653 * (8 / 6) ** 0.5, abs=1e-5)
    # Student's t of 2 degrees in closed form: p = 1 - t / sqrt(2 + t²), t² = 3
    assert result["p_value"] == pytest.approx(1 - (3 / 5) ** 0.5)
    assert (result["seed"], result["problem"], result["residual"]) == (4.0, 0.0, 0.0)


def test_two_seeds_that_agree_by_luck_keep_one_degree_of_freedom():
    # seeds 0, problems 2 (1 + 1 + 4) / 2 = 6, residual 4 / 2 = 2, which takes the seeds' place
    result = one([[1, 2, 6], [3, 2, 4]])
    assert result["standard_error"] == pytest.approx(((2 + 6 - 2) / 6) ** 0.5)
    assert result["degrees"] == pytest.approx(6**2 / (2**2 / 1 + 6**2 / 2 + 2**2 / 2))
    assert (result["seed"], result["problem"], result["residual"]) == (0.0, 2.0, 2.0)


def test_three_seeds_that_differ_less_than_the_residual_take_its_degrees():
    # seeds 0, problems 3 (1 + 1 + 4) / 2 = 9, residual 4 / 4 = 1 with 4 degrees
    result = one([[1, 2, 6], [3, 2, 4], [2, 2, 5]])
    assert result["standard_error"] == pytest.approx(((1 + 9 - 1) / 9) ** 0.5)
    assert result["degrees"] == pytest.approx(9**2 / (1 / 4 + 9**2 / 2 + 1 / 4))


def test_one_seed_is_students_t_over_problems():
    result = one([[0, 1, 2]])
    assert (result["value"], result["degrees"]) == (1.0, 2.0)
    assert result["standard_error"] == pytest.approx(3**-0.5)
    assert result["high"] - 1.0 == pytest.approx(4.302653 * 3**-0.5, abs=1e-5)
    assert np.isnan(result["seed"])


def test_the_interval_leaves_0_out_exactly_where_p_is_small():
    values = np.random.default_rng(0).normal(0.2, 1.0, (3, 30, 200))
    result = estimate_means(values, confidence=0.9)
    outside = (result.low > 0.0) | (result.high < 0.0)
    assert 0 < outside.sum() < 200
    np.testing.assert_array_equal(outside, result.p_value < 0.1)


@pytest.mark.parametrize("num_seeds", [1, 2, 4])
def test_exchanging_the_methods_mirrors_and_order_says_nothing(num_seeds):
    stream = np.random.default_rng(0)
    values = stream.normal(0.1, 1.0, (num_seeds, 20))
    result, mirrored = one(values), one(-values)
    assert mirrored["low"] == pytest.approx(-result["high"])
    assert mirrored["p_value"] == pytest.approx(result["p_value"])
    shuffled = stream.permutation(stream.permutation(values, axis=0), axis=1)
    assert one(shuffled)["low"] == pytest.approx(result["low"])


@pytest.mark.parametrize("num_seeds", [1, 3])
def test_cells_that_are_all_the_same_have_no_width(num_seeds):
    same = one(np.zeros((num_seeds, 5)))
    assert (same["low"], same["high"], same["p_value"]) == (0.0, 0.0, 1.0)
    always = one(np.ones((num_seeds, 5)))
    assert (always["low"], always["high"], always["p_value"]) == (1.0, 1.0, 0.0)


def test_what_is_equal_but_for_rounding_does_not_differ():
    assert 0.1 + 0.2 - 0.3 == 5.551115123125783e-17
    everywhere = one([[0.1 + 0.2 - 0.3] * 4] * 3)
    assert [everywhere[name] for name in ("value", "low", "high", "p_value")] == [0, 0, 0, 1]
    # In half of the cells: mean over error, and so p, would be those of any other scale.
    noise = np.where(np.arange(40).reshape(2, 20) % 2, 5e-17, 0.0)
    assert one(noise)["p_value"] == 1.0
    assert one(noise * 1e15)["p_value"] < 0.001


@pytest.mark.parametrize("num_seeds", [3, 5])
@pytest.mark.parametrize("seed_deviation", [0.02, 0.03, 0.08])
def test_where_seeds_differ_95_of_100_intervals_hold_the_truth(num_seeds, seed_deviation):
    values = synthetic_pools.differences(
        0, num_seeds=num_seeds, num_problems=150, seed_deviation=seed_deviation
    )
    result = estimate_means(values, confidence=0.95)
    assert 0.93 <= synthetic_pools.coverage(result.low, result.high, 0.0) <= 0.97


@pytest.mark.parametrize(("num_seeds", "most"), [(1, 0.97), (2, 1.0), (3, 0.995), (5, 0.995)])
def test_where_they_do_not_differ_the_intervals_are_on_the_safe_side(num_seeds, most):
    values = synthetic_pools.differences(
        0, num_seeds=num_seeds, num_problems=150, seed_deviation=0.0
    )
    result = estimate_means(values, confidence=0.95)
    assert 0.94 <= synthetic_pools.coverage(result.low, result.high, 0.0) <= most


@pytest.mark.parametrize("seed_deviation", [0.03, 0.08])
def test_two_seeds_that_differ_more_than_problems_are_not_too_sure(seed_deviation):
    values = synthetic_pools.differences(
        0, num_seeds=2, num_problems=150, seed_deviation=seed_deviation
    )
    result = estimate_means(values, confidence=0.95)
    assert synthetic_pools.coverage(result.low, result.high, 0.0) >= 0.94


def test_the_variances_are_found_again_on_average():
    values = synthetic_pools.differences(3, num_seeds=8, num_problems=150, seed_deviation=0.05)
    components = estimate_means(values, confidence=0.95).components
    # two methods: twice the variance of each
    assert components.seed.mean() == pytest.approx(2 * 0.05**2, rel=0.05)
    assert components.problem.mean() == pytest.approx(2 * 0.03**2, rel=0.1)


WANTED = PowerDesign(significance=0.05, power=0.8)
ONE = VarianceComponents(*np.array([[np.nan], [0.16], [0.0]]), pooled=np.array([False]))
SEVERAL = VarianceComponents(*np.array([[0.0004], [0.01], [0.05]]), pooled=np.array([False]))


def test_of_one_seed_it_is_the_paired_t_test():
    # t of 100 degrees: 1.983972 at 0.975, 0.845230 at 0.8; standard error 0.4 / sqrt(101)
    result = detectable_difference(ONE, WANTED, num_seeds=1, num_problems=101)
    assert result == pytest.approx((1.983972 + 0.845230) * 0.4 / 101**0.5, abs=1e-6)


def test_what_is_detectable_is_detected_as_often_as_wanted():
    shape = (3, 120, 4000)
    stream = np.random.default_rng(0)
    effect = detectable_difference(SEVERAL, WANTED, num_seeds=3, num_problems=120)
    values = (
        effect
        + stream.normal(0, SEVERAL.seed**0.5, (3, 1, 4000))
        + stream.normal(0, SEVERAL.problem**0.5, (1, 120, 4000))
        + stream.normal(0, SEVERAL.residual**0.5, shape)
    )
    result = estimate_means(values, confidence=0.95)
    assert np.mean(result.p_value <= 0.05) == pytest.approx(0.8, abs=0.06)


@pytest.mark.parametrize("effect", [0.05, -0.08])
def test_the_numbers_needed_are_the_fewest_that_do(effect):
    problems, seeds = required_sizes(SEVERAL, effect, WANTED, num_seeds=8, num_problems=200)
    assert problems is not None
    assert detectable_difference(SEVERAL, WANTED, num_seeds=8, num_problems=problems) <= abs(effect)
    assert detectable_difference(SEVERAL, WANTED, num_seeds=8, num_problems=problems - 1) > abs(
        effect
    )
    assert seeds is not None
    assert detectable_difference(SEVERAL, WANTED, num_seeds=seeds, num_problems=200) <= abs(effect)
    assert detectable_difference(SEVERAL, WANTED, num_seeds=seeds - 1, num_problems=200) > abs(
        effect
    )


def test_no_number_of_problems_makes_up_for_seeds_that_differ():
    # with endless problems 3 seeds leave 0.02 / sqrt(3) times t of 2 degrees, 4.30 + 1.06
    assert required_sizes(SEVERAL, 0.05, WANTED, num_seeds=3, num_problems=9)[0] is None
    assert required_sizes(SEVERAL, 0.07, WANTED, num_seeds=3, num_problems=9)[0] is not None


@pytest.mark.parametrize("offset", [0.0, 0.5])
def test_an_experiment_is_planned_as_it_is_estimated(offset):
    # with and without a spread of the seeds: the same standard error and degrees of freedom
    stream = np.random.default_rng(4)
    values = stream.normal(0, 1, (3, 50)) + stream.normal(0, 1, (1, 50))
    values = values - values.mean(axis=1, keepdims=True) + offset * np.arange(3)[:, None]
    result = estimate_means(values[..., None], confidence=0.95)
    assert result.components.pooled[0] == (offset == 0.0)
    half = PowerDesign(significance=0.05, power=0.5)  # its quantile is 0
    planned = detectable_difference(result.components, half, num_seeds=3, num_problems=50)
    assert planned == pytest.approx(float(result.high[0] - result.value[0]))


def test_one_seed_says_nothing_of_others():
    assert required_sizes(ONE, 0.1, WANTED, num_seeds=1, num_problems=50)[1] is None


def test_a_difference_of_0_cannot_be_planned_for():
    with pytest.raises(AssertionError, match="cannot be detected"):
        required_sizes(ONE, 0.0, WANTED, num_seeds=1, num_problems=50)


def test_the_hand_worked_three():
    assert holm_adjusted([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_one_comparison_is_left_as_it_is_and_none_is_none():
    assert holm_adjusted([0.2]) == [0.2]
    assert holm_adjusted([]) == []


def test_it_is_capped_and_keeps_the_order():
    result = holm_adjusted([0.5, 0.9, 0.02, 0.5])
    assert result == pytest.approx([1.0, 1.0, 0.08, 1.0])


def test_it_lies_between_the_plain_values_and_bonferronis():
    stream = np.random.default_rng(0)
    for _ in range(50):
        plain = stream.random(6) ** 3
        result = np.array(holm_adjusted(plain.tolist()))
        assert (result >= plain).all()
        assert (result <= np.minimum(1.0, 6 * plain) + 1e-15).all()
        assert (np.argsort(result[np.argsort(plain)], kind="stable") == np.arange(6)).all()


def test_it_errs_in_a_table_without_differences_as_rarely_as_it_says():
    stream = np.random.default_rng(1)
    errs = [min(holm_adjusted(stream.random(8).tolist())) <= 0.05 for _ in range(4000)]
    assert np.mean(errs) == pytest.approx(1 - (1 - 0.05 / 8) ** 8, abs=0.017)  # five errors


def test_clusters_by_hand():
    cells = np.array([[1.0, 1, 0, 1]])[..., None]
    collapsed = collapse_clusters(cells, np.array([0, 0, 1, 2]))
    assert collapsed[0, :, 0] == pytest.approx([9 / 8, 3 / 16, 15 / 16])
    # variance: 3 / 2 (1 / 4)² (1/2² + 3/4² + 1/4²) = 21 / 256, with two degrees of freedom
    result = one(collapsed[..., 0])
    assert result["value"] == pytest.approx(0.75)
    assert result["standard_error"] == pytest.approx((21 / 256) ** 0.5)
    assert result["degrees"] == 2
    assert collapse_clusters(cells, np.arange(4)) is cells


def test_problems_that_are_repeated_are_no_evidence():
    cells = np.random.default_rng(0).random((3, 5, 2))
    repeated = collapse_clusters(np.repeat(cells, 4, axis=1), np.repeat(np.arange(5), 4))
    assert repeated == pytest.approx(cells)
    independent = estimate_means(np.repeat(cells, 4, axis=1), confidence=0.95)
    assert (
        independent.standard_error < estimate_means(cells, confidence=0.95).standard_error
    ).all()
