import numpy as np
import pytest

from stages.algorithms.statistics import crossed_means
from stages.studies import equal_compute, search_report
from stages.studies.equal_compute import CostCurve, Place, SearchOutcome, place_on_curve

COSTS = {1: 10.0, 2: 20.0, 4: 40.0}
SETTINGS = {"confidence": 0.95}


def problems(*means, number=40):
    """Of each mean, so many problems that are right, under one seed."""
    return [(np.arange(number) < round(mean * number))[None] for mean in means]


def curve(*means):
    values = [problem.astype(float) for problem in problems(*means)]
    costs = {"flops": COSTS, "tokens": {n: cost / 10 for n, cost in COSTS.items()}}
    return CostCurve(accuracy=dict(zip(COSTS, values, strict=True)), costs=costs)


def searched(flops, flops_once=10.0, tokens=3.0, **accuracy):
    values = {way: problems(mean)[0].astype(float) for way, mean in accuracy.items()}
    costs = {"flops": flops, "flops_once": flops_once, "tokens": tokens}
    return SearchOutcome(accuracy=values, costs=costs)


def test_the_place_of_a_budget_on_a_curve():
    assert place_on_curve(COSTS, 10.0) == Place(low=1, high=2, share=0.0)
    assert place_on_curve(COSTS, 25.0) == Place(low=2, high=4, share=0.25)
    assert place_on_curve(COSTS, 40.0) == Place(low=4, high=4, share=0.0)
    assert place_on_curve(COSTS, 400.0) == Place(low=4, high=4, share=0.0)
    assert place_on_curve(COSTS, 9.9) is None


def test_scoring_reads_equal_completions_once_and_a_token_a_step():
    short, long = ((1, 2), 0), ((3, 4, 5), 0)
    result = equal_compute.count_distinct_tokens([[short, short, long], [((6,), 0)] * 3], [1, 3])
    # one of three: 2/3 * 2 + 1/3 * 3 = 7/3 tokens of the first problem, 1 of the second
    assert result == pytest.approx({1: (7 / 3 + 1) / 2, 3: (5 + 1) / 2})
    assert equal_compute.count_distinct_tokens([[((1, 2, 3), 2)]], [1]) == {1: 3 + 2}


def test_it_is_compared_where_both_cost_the_same_not_at_the_same_n():
    curves = {"majority": curve(0.2, 0.4, 0.8)}
    result = equal_compute.compare_at_equal_compute(
        curves, {"beam": searched(25.0, best=0.6)}, **SETTINGS
    )
    assert result["curves"]["majority"]["4"]["value"] == 0.8
    assert result["curves"]["majority"]["4"]["flops"] == 40.0
    beam = result["searches"]["beam"]
    assert beam["accuracy"]["best"]["value"] == 0.6
    as_run = beam["versus"]["flops"]["majority"]
    assert (as_run["n"], as_run["n_cost"], as_run["at_end"]) == (2, 20.0, False)
    assert as_run["ways"]["best"]["at_n"]["difference"] == pytest.approx(0.2)
    # a quarter of the way from 0.4 to 0.8
    assert as_run["ways"]["best"]["interpolated"]["difference"] == pytest.approx(0.1)
    cached = beam["versus"]["flops_once"]["majority"]
    assert cached["n"] == 1
    assert cached["ways"]["best"]["interpolated"]["difference"] == pytest.approx(0.4)
    # three tokens are half way from two samples, 0.4, to four, 0.8
    tokens = beam["versus"]["tokens"]["majority"]
    assert (tokens["n"], tokens["n_cost"]) == (2, 2.0)
    assert tokens["ways"]["best"]["interpolated"]["difference"] == pytest.approx(0.0)


def test_differences_are_paired():
    # As right as each other on the very same problems: no doubt about the difference.
    actual = equal_compute.compare_at_equal_compute(
        {"a": curve(0.5, 0.5, 0.5)}, {"beam": searched(20.0, best=0.5)}, **SETTINGS
    )
    gain = actual["searches"]["beam"]["versus"]["flops"]["a"]["ways"]["best"]["at_n"]
    assert gain == {"difference": 0.0, "low": 0.0, "high": 0.0}
    # Right on the others: the interval is that of the problems' differences.
    first, second = problems(0.5)[0].astype(float), 1.0 - problems(0.5)[0]
    costs = {"flops": 20.0, "flops_once": 20.0, "tokens": 2.0}
    opposed = SearchOutcome(accuracy={"best": second}, costs=costs)
    actual = equal_compute.compare_at_equal_compute(
        {"a": curve(0.5, 0.5, 0.5)}, {"beam": opposed}, **SETTINGS
    )
    gain = actual["searches"]["beam"]["versus"]["flops"]["a"]["ways"]["best"]["at_n"]
    expected = crossed_means.estimate_means((second - first)[..., None], **SETTINGS)
    assert gain["low"] == pytest.approx(float(expected.low[0]))
    assert gain["low"] < -0.2
    assert gain["high"] > 0.2


def test_beyond_the_end_and_before_the_beginning_are_told():
    result = equal_compute.compare_at_equal_compute(
        {"a": curve(0.2, 0.4, 0.8)}, {"s": searched(400.0, 5.0, best=0.9)}, **SETTINGS
    )
    versus = result["searches"]["s"]["versus"]
    assert versus["flops"]["a"]["at_end"]
    assert versus["flops"]["a"]["n"] == 4
    assert versus["flops_once"]["a"] is None
    text = search_report.render_report(result, image="plots/x.png", way="best")
    assert "at n = 4, the largest" in text
    assert "costs less than n = 1" in text


def test_the_verdict_says_what_the_interval_says():
    curves = {"a": curve(0.5, 0.5, 0.5), "b": curve(0.2, 0.2, 0.2)}
    for mean, words in ((0.95, "beats"), (0.5, "cannot be told from"), (0.1, "is worse than")):
        result = equal_compute.compare_at_equal_compute(
            curves, {"s": searched(25.0, weighted=mean)}, **SETTINGS
        )
        verdict = search_report.describe_result(result, way="weighted")
        assert verdict.startswith("`s`, weighted vote, at its cost ")
        assert f"{words} a (" in verdict


def test_the_plot_is_drawn_the_same_again(tmp_path):
    curves = {"a": curve(0.2, 0.4, 0.8)}
    searches = {"s": searched(25.0, best=0.6, weighted=0.7, majority=0.5)}
    result = equal_compute.compare_at_equal_compute(curves, searches, **SETTINGS)
    search_report.draw_equal_compute(tmp_path / "a.png", result)
    search_report.draw_equal_compute(tmp_path / "b.png", result)
    image = (tmp_path / "a.png").read_bytes()
    assert image.startswith(b"\x89PNG")
    assert image == (tmp_path / "b.png").read_bytes()
