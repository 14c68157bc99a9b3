import numpy as np
import pytest

from stages.algorithms.statistics import reward_over_distance as forms
from stages.studies import proxy_curves
from stages.studies.proxy_curves import OveroptimizationConfig, ProxyCurve

CONFIG = OveroptimizationConfig(min_distance=0.1, num_bootstrap=200, confidence=0.95)
DISTANCE = np.array([0.0, 0.5, 1.0, 1.5, 2.0])


def made(gold, proxy, form="quadratic", noise=0.0, units=None):
    """A curve of 100 problems whose means follow the coefficients, relative to a start of 0.4."""
    stream = np.random.default_rng(0)

    def around(coefficients, start):
        mean = start + forms.reward_curve(np.array(coefficients), DISTANCE, form)
        return mean + noise * stream.normal(size=(100, len(DISTANCE)))

    return ProxyCurve(
        method="run",
        name="ppo",
        scorer="ensemble",
        places=[0, 2, 4, 6, 8],
        form=form,
        kl=np.tile(DISTANCE**2, (100, 1)),
        proxy=around(proxy, 5.0),
        gold=around(gold, 0.4),
        units=units or {"proxy": 1.0, "gold": 1.0},
    )


@pytest.mark.parametrize("form", ["quadratic", "logarithmic"])
def test_fits_are_of_what_was_put_in(form):
    curve = made((0.3, 0.15), (1.0, 0.1), form, units={"proxy": 2.0, "gold": 0.5})
    actual = proxy_curves.measure_curves(curve, CONFIG, 0)
    gold, proxy = actual["fits"]["gold"], actual["fits"]["proxy"]
    assert (gold["alpha"], gold["beta"]) == (0.6, 0.3)  # in units of 0.5
    assert (proxy["alpha"], proxy["beta"]) == (0.5, 0.05)
    expected = forms.peak_distance(np.array([0.6, 0.3]), form)
    assert gold["peak_distance"] == pytest.approx(float(expected), abs=1e-5)
    assert gold["band"]["low"] == gold["band"]["high"] == gold["band"]["value"]
    assert actual["points"][2]["accuracy"]["value"] == pytest.approx(
        0.4 + 0.3 - (0.15 if form == "quadratic" else 0)
    )
    assert actual["points"][2]["distance"] == 1.0


def test_a_true_reward_that_falls_while_the_proxy_rises_is_over_optimised():
    result = proxy_curves.measure_curves(made((0.4, 0.2), (1.0, 0.1), noise=0.1), CONFIG, 0)
    assert result["overoptimised"]
    assert result["best_place"] == 4
    assert result["fits"]["gold"]["peak_is_measured"]
    assert result["fits"]["gold"]["peaks_measured"] == 1.0
    assert result["accuracy_after_best"]["value"] == pytest.approx(-0.2, abs=0.06)
    assert result["proxy_after_best"]["low"] > 0


def test_neither_a_rising_truth_nor_noise_nor_a_falling_proxy_is():
    for gold, proxy in (((0.4, 0.05), (1.0, 0.1)), ((0.0, 0.0), (1.0, 0.1)), ((0.4, 0.2),) * 2):
        result = proxy_curves.measure_curves(made(gold, proxy, noise=0.1), CONFIG, 0)
        assert not result["overoptimised"], (gold, proxy)


def test_a_peak_beyond_what_was_measured_is_said_to_be():
    result = proxy_curves.measure_curves(made((0.4, 0.05), (1.0, -0.1)), CONFIG, 0)
    gold, proxy = result["fits"]["gold"], result["fits"]["proxy"]
    assert gold["peak_distance"] == 4.0
    assert not gold["peak_is_measured"]
    assert gold["peaks_measured"] == 0.0
    # a proxy that bends up has none at all
    assert proxy["peak_distance"] is proxy["peak_distance_high"] is proxy["peak_reward"] is None


def test_too_few_points_fix_no_fit():
    curve = made((0.4, 0.2), (1.0, 0.1))
    short = {name: getattr(curve, name)[:, :2] for name in ("kl", "proxy", "gold")}
    two = ProxyCurve(
        method="run",
        name="ppo",
        scorer="ensemble",
        places=[0, 8],
        form="logarithmic",
        units=curve.units,
        **short,
    )
    assert proxy_curves.measure_curves(two, CONFIG, 0)["fits"] == {"proxy": None, "gold": None}


def test_a_divergence_estimated_below_zero_is_no_distance():
    curve = made((0.4, 0.2), (1.0, 0.1))
    curve.kl[:, 1] = -0.01
    assert proxy_curves.measure_curves(curve, CONFIG, 0)["points"][1]["distance"] == 0.0


def test_the_spread_is_within_problems():
    assert (
        proxy_curves.measure_within_deviation([np.array([0.0, 2.0]), np.array([100.0, 104.0])])
        == 2.5**0.5
    )
    assert (
        proxy_curves.measure_within_deviation([np.array([1.0, 1.0]), np.array([7.0, 7.0])]) == 0.0
    )


def test_the_same_seed_gives_the_same_numbers():
    curve = made((0.4, 0.2), (1.0, 0.1), noise=0.1)
    assert proxy_curves.measure_curves(curve, CONFIG, 1) == proxy_curves.measure_curves(
        curve, CONFIG, 1
    )


NEAR = DISTANCE[:4]
DIFFICULTY = np.random.default_rng(0).normal(size=(50, 1))


def curve(scorer, coefficients):
    """What all problems share, and a difficulty of each, which a paired difference cancels."""
    gold = 0.4 + DIFFICULTY + forms.reward_curve(np.array(coefficients), NEAR, "quadratic")
    kl = np.tile(NEAR**2, (50, 1))
    return ProxyCurve(
        method="best_of_n", name="sft", scorer=scorer, places=[1, 2, 3, 4], form="quadratic",
        kl=kl, proxy=gold, gold=gold, units={"proxy": 1.0, "gold": 0.5},
    )  # fmt: skip


def compare(single, several):
    curves = curve("reward_model", single), curve("ensemble", several)
    return proxy_curves.compare_curves(*curves, CONFIG, 0)


def test_a_peak_farther_away_and_a_better_end():
    # 2 d - d^2 / 1: peak at 1; 2 d - 0.8 d^2: at 1.25
    result = compare((2.0, 1.0), (2.0, 0.8))
    assert (result["name"], result["n"]) == ("sft", 4)
    assert result["peak_shift"] == pytest.approx({"value": 0.25, "low": 0.25, "high": 0.25})
    assert result["accuracy_at_end"]["value"] == pytest.approx(0.2 * 1.5**2)
    assert result["accuracy_at_end"]["low"] == pytest.approx(result["accuracy_at_end"]["high"])


def test_the_same_choices_make_no_difference():
    result = compare((2.0, 1.0), (2.0, 1.0))
    assert result["peak_shift"] == result["accuracy_at_end"] == dict.fromkeys(
        ("value", "low", "high"), 0.0
    )  # fmt: skip


def test_without_a_peak_there_is_no_shift():
    assert compare((2.0, 1.0), (2.0, -0.1))["peak_shift"] is None
