"""The forecast of a detectable difference, against the test that the report makes."""

from pathlib import Path

import numpy as np
import pytest

from stages.algorithms.statistics import crossed_means
from stages.report import forecast
from stages.report.estimates import Results
from stages.report.forecast import ASSUMED, Components, Design

DESIGN = Design(
    num_seeds=3, num_problems=100, num_samples=8, num_differences=4, confidence=0.95
)  # fmt: skip
TRUE = Components(seed=4e-4, problem=0.01, interaction=0.0, sample=0.5 - 0.0104)
"""Of a baseline that is always right half of the time, and a policy that is so on average."""


def draw_accuracies(stream, shift, num_columns, *, design=DESIGN):
    """Tables of the baseline and the policy, by samples that are right or wrong."""
    shape = (design.num_seeds, design.num_problems, num_columns)
    seed = stream.normal(0.0, TRUE.seed**0.5, (shape[0], 1, num_columns))
    problem = stream.normal(0.0, TRUE.problem**0.5, (1, *shape[1:]))
    rates = np.clip(0.5 + shift + seed + problem, 0.0, 1.0), np.full(shape, 0.5)
    return [stream.binomial(design.num_samples, rate) / design.num_samples for rate in rates]


@pytest.mark.parametrize("num_seeds", [3, 6])
def test_of_100_experiments_80_detect_the_difference_that_is_forecast(num_seeds):
    design = DESIGN._replace(num_seeds=num_seeds)
    expected = forecast.forecast_comparison(TRUE, design)
    stream = np.random.default_rng(num_seeds)
    policy, baseline = draw_accuracies(stream, expected.detectable, 3000, design=design)
    means = crossed_means.estimate_means(policy - baseline, confidence=0.95)
    detected = means.p_value <= 0.05 / design.num_differences
    assert detected.mean() == pytest.approx(0.8, abs=0.03)  # four standard errors
    half = np.median(means.high - means.value)
    assert half == pytest.approx(expected.half_width, rel=0.05)


def test_of_one_seed_it_is_the_paired_t_test():
    design = DESIGN._replace(num_seeds=1, num_problems=101, num_differences=1)
    components = Components(seed=0.0, problem=0.16, interaction=0.0, sample=0.0)
    # (t_0.975 + t_0.8) 0.4 / sqrt(101), with 100 degrees of freedom
    expected = forecast.forecast_comparison(components, design).detectable
    assert expected == pytest.approx(0.1126, rel=0.01)


def test_a_difference_of_more_than_100_points_is_none():
    design = DESIGN._replace(num_seeds=2, num_problems=24)
    assert forecast.forecast_comparison(ASSUMED, design).detectable > 1.0
    line = forecast.describe_forecast(ASSUMED, design, "assumed")
    assert "not even a difference in mean accuracy of 100 points is detected" in line
    assert "with a probability of 80 %" in line
    line = forecast.describe_forecast(ASSUMED, DESIGN, "assumed")
    assert "detects a difference in mean accuracy of" in line


def results(policies, num_samples=8):
    seeds = list(range(len(next(iter(policies.values())))))
    return Results(
        seeds=seeds, ids=["a"] * 100, num_samples=num_samples, ns=[], halves={}, metrics={},
        tables={name: {"mean_accuracy": table} for name, table in policies.items()},
        confidence=0.95,
    )  # fmt: skip


def test_components_of_an_earlier_run_are_those_it_was_drawn_with():
    design = DESIGN._replace(num_seeds=300, num_problems=300)
    policy, baseline = draw_accuracies(np.random.default_rng(1), 0.0, 1, design=design)
    result = forecast.estimate_components(results({"sft": baseline[..., 0], "a": policy[..., 0]}))
    assert result is not None
    assert result.seed == pytest.approx(TRUE.seed, rel=0.3)
    assert result.problem == pytest.approx(TRUE.problem, rel=0.3)
    assert result.interaction + result.sample / 8 == pytest.approx(TRUE.sample / 8, rel=0.02)
    assert result.sample == pytest.approx(TRUE.sample, rel=0.03)


def test_of_one_earlier_seed_the_variance_of_seeds_is_assumed():
    policy, baseline = draw_accuracies(np.random.default_rng(2), 0.0, 1)
    result = forecast.estimate_components(
        results({"sft": baseline[:1, :, 0], "a": policy[:1, :, 0]})
    )
    assert result is not None
    assert result.seed == ASSUMED.seed
    assert result.sample == pytest.approx(TRUE.sample, rel=0.1)
    assert forecast.estimate_components(results({"sft": baseline[..., 0]})) is None


def test_samples_problems_seeds_and_a_smaller_family_each_detect_more():
    def detectable(**sizes):
        return forecast.forecast_comparison(TRUE, DESIGN._replace(**sizes)).detectable

    least = detectable()
    for sizes in (
        {"num_samples": 64}, {"num_problems": 400}, {"num_seeds": 5}, {"num_differences": 1},
    ):  # fmt: skip
        assert detectable(**sizes) < least, sizes


def test_the_sizes_of_a_difference_are_the_fewest_that_detect_it():
    def detects(**sizes):
        design = DESIGN._replace(**sizes)
        return forecast.forecast_comparison(ASSUMED, design).detectable <= 0.08

    problems, seeds = forecast.forecast_sizes(ASSUMED, DESIGN, 0.08)
    assert problems is not None
    assert seeds is not None
    assert detects(num_problems=problems)
    assert not detects(num_problems=problems - 1)
    assert detects(num_seeds=seeds)
    assert not detects(num_seeds=seeds - 1)
    alone = DESIGN._replace(num_seeds=1)
    assert forecast.forecast_sizes(ASSUMED, alone, 0.08)[1] is None


def test_of_policies_that_are_never_right_nothing_is_forecast():
    never = results({"sft": np.zeros((3, 100)), "a": np.zeros((3, 100))})
    assert forecast.estimate_components(never) is None
    gains = {"mean_accuracy": {"a": {"low": 0.0, "high": 0.0}}}
    assert forecast.compare_forecast(never, gains) == {}


def test_without_an_earlier_run_the_variances_are_assumed(tmp_path: Path):
    components, source = forecast.read_components(tmp_path, "sft", ["dpo"])
    assert components == ASSUMED
    assert "assumed" in source
    params = {"seeds": [0, 1, 2], "baseline": "sft", "sampling": {"test": {"num_samples": 16}},
              "evaluation": {"confidence": 0.95}}  # fmt: skip
    rows = {"sft": {}, "dpo": {}, "coin": {"control": "no_effect"}}
    _, design, _ = forecast.plan_comparison(params, {"policies": rows}, 530)
    assert design.num_differences == 1, "neither the baseline nor a control"


def test_the_report_puts_the_forecast_beside_the_intervals_of_the_gains():
    forecasts = {
        "assumed": {"half_width": 0.023, "detectable": 0.07},
        "of_this_run": {"half_width": 0.019, "detectable": 0.048},
    }
    widths = {"half_widths": {"narrowest": 0.004, "widest": 0.05}}
    (sentences,) = forecast.describe_comparison({"forecast": forecasts | widths})
    assert sentences == (
        "Forecast of the gains' intervals for so many seeds, problems and samples: ±2.3 points, "
        "and a detectable gain of 7.0 points, by the variances that are assumed where there is no "
        "earlier run; ±1.9 points, and a detectable gain of 4.8 points, by the variances of this "
        "run, which `python -m stages.doctor` uses from now on. The intervals above are between "
        "±0.4 and ±5.0 points."
    )
    forecasts["assumed"] = {"half_width": 0.9, "detectable": 1.9}
    (sentences,) = forecast.describe_comparison({"forecast": forecasts | widths})
    assert ": ±90.0 points, and no detectable gain, by the variances that are assumed" in sentences
    assert forecast.describe_comparison({}) == []
