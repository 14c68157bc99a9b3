"""Families of comparisons, and accuracy by difficulty without regression to the mean."""

from dataclasses import replace

import numpy as np
import pytest

from stages.algorithms.selection import votes
from stages.report import comparison, sections, tables
from stages.report.estimates import Results
from stages.report.sharpening import PolicyTemperatures

SEEDS = [0, 1]
NAMES = ("outcome", "mean_logprob", "format", "longest", "shortest")


def results(accuracy, *, majority=None, halves=None, seeds=SEEDS):
    """Policies with the same accuracy table for every estimate but those evaluated."""
    tables = {}
    for policy, table in accuracy.items():
        values = np.asarray(table, dtype=np.float64)
        ways = [f"{way}/{name}/4" for way in ("best_of", "weighted") for name in NAMES]
        keys = ["mean_strict", "mean_lenient", "greedy_accuracy", "greedy_strict", "greedy_lenient",
                "mean_accuracy", "readable_rate", "format_rate", "truncation_rate", "mean_tokens",
                "majority/4", "pass/4", "pass/16", "best_temperature_accuracy", *ways]  # fmt: skip
        tables[policy] = dict.fromkeys(keys, values)
        if majority is not None:
            tables[policy]["majority/4"] = np.asarray(majority, dtype=np.float64)
    problems = next(iter(tables.values()))["mean_accuracy"].shape[1]
    dev = {name: {"dev_accuracy": table["mean_accuracy"].mean()} for name, table in tables.items()}
    return Results(
        seeds=seeds,
        ids=[f"p{at}" for at in range(problems)],
        num_samples=16,
        ns=[4],
        tables=tables,
        halves=halves or {name: (t["mean_accuracy"],) * 2 for name, t in tables.items()},
        metrics={
            name: dict.fromkeys(seeds, item | {"auc/outcome": 0.7}) for name, item in dev.items()
        },
        confidence=0.95,
        temperatures={name: at_temperatures(t["mean_accuracy"]) for name, t in tables.items()},
    )


def at_temperatures(sampled, best=None, lenient=None):
    """Accuracies as sampled at 1, and at 0, which is the best on the dev problems."""
    best = sampled if best is None else np.asarray(best)
    return PolicyTemperatures(
        sampled=1.0,
        dev={1.0: np.zeros((len(sampled), 2)), 0.0: np.ones((len(sampled), 2))},
        test={1.0: np.asarray(sampled), 0.0: best},
        lenient={1.0: np.asarray(sampled), 0.0: best if lenient is None else np.asarray(lenient)},
    )


SFT, DPO, GRPO = [[0.25, 0.5, 0.0]] * 2, [[0.5, 0.75, 0.25]] * 2, [[0.75, 1.0, 0.5]] * 2


def test_policies_against_the_baseline_and_each_other():
    result = comparison.compare_policies(results({"sft": SFT, "dpo": DPO, "grpo": GRPO}))
    gains = result["gains"]["mean_accuracy"]
    assert {name: (item["value"], item["significant"]) for name, item in gains.items()} == {
        "dpo": (0.25, False), "grpo": (0.5, False),
    }, "the same on three problems, of which there may be others"  # fmt: skip
    (pair,) = result["pairs"]
    assert pair == "grpo - dpo", "the larger mean is first"
    assert result["pairs"][pair]["value"] == 0.25
    assert result["policies"]["sft"]["mean_accuracy"]["value"] == 0.25
    assert result["best_on_dev"] == "grpo"
    assert (result["n"], result["num_problems"], result["seeds"]) == (4, 3, [0, 1])


def test_what_repeats_itself_is_told_of_those_policies_that_do():
    evaluated = results({"sft": SFT, "dpo": DPO})
    evaluated.metrics["dpo"][1] = evaluated.metrics["dpo"][1] | {"in_loop/test_greedy": 0.5}
    metrics = comparison.compare_policies(evaluated)
    cells = {
        row["policy"]: row.get("greedy in a loop, %") for row in tables.tabulate_estimates(metrics)
    }
    assert cells == {"sft": None, "dpo": "25.0"}, "the mean of 0 and 0.5"
    assert "in_loop/test_greedy" not in metrics["policies"]["sft"]


def test_gains_at_the_best_temperature_are_a_family_of_their_own():
    stream = np.random.default_rng(0)
    evaluated = results(
        {name: stream.random((3, 40)) for name in ("sft", "dpo", "ppo")}, seeds=[0, 1, 2]
    )
    evaluated.tables["dpo"]["best_temperature_accuracy"] = (
        evaluated.tables["sft"]["mean_accuracy"] + 0.1 + 0.05 * stream.random((3, 40))
    )
    gains = comparison.compare_policies(evaluated)["gains"]
    at_best, sampled = gains["best_temperature_accuracy"], gains["mean_accuracy"]
    assert at_best["dpo"]["significant"]
    assert not sampled["dpo"]["significant"]
    assert at_best["dpo"]["p_holm"] == pytest.approx(2 * at_best["dpo"]["p"], abs=2e-6), "of two"
    assert at_best["ppo"]["p"] == sampled["ppo"]["p"]
    assert at_best["ppo"]["p_holm"] != sampled["ppo"]["p_holm"], "not adjusted with the others"


def test_the_parts_of_a_gain_add_up_to_it():
    evaluated = results({"sft": [[0.5, 0.5]] * 2, "dpo": [[0.75, 1.0]] * 2})
    evaluated.temperatures["sft"] = at_temperatures([[0.5, 0.5]] * 2, best=[[0.75, 0.75]] * 2)
    evaluated.temperatures["dpo"] = at_temperatures([[0.75, 1.0]] * 2, best=[[1.0, 1.0]] * 2)
    result = comparison.compare_policies(evaluated)
    parts = {name: part["value"] for name, part in result["parts"]["dpo"].items()}
    assert parts == {"sharpening": 0.125, "format": 0.0, "rest": 0.25}
    assert sum(parts.values()) == result["gains"]["mean_accuracy"]["dpo"]["value"]
    (row,) = tables.tabulate_parts(result)
    assert row["sharpening"].startswith("+12.5 [")


def test_ways_to_choose_against_the_majority_and_the_format():
    result = comparison.compare_policies(results({"sft": DPO}, majority=SFT))
    of_sft = result["selection"]["sft"]
    assert set(of_sft["over_majority"]) == {
        "best_of/outcome", "best_of/mean_logprob", "weighted/outcome", "weighted/mean_logprob",
    }  # fmt: skip
    assert of_sft["over_majority"]["best_of/outcome"]["value"] == 0.25
    assert of_sft["over_format"]["best_of/outcome"]["value"] == 0.0
    assert set(of_sft["accuracy"]) > set(of_sft["over_majority"])
    assert of_sft["auc"] == {"outcome": {"value": 0.7, "seeds": {"0": 0.7, "1": 0.7}}}
    assert result["gains"]["mean_accuracy"] == result["pairs"] == {}


def test_fifths_by_one_half_of_the_samples_measured_by_the_other():
    even = np.array([[1.0, 0.0, 0.25, 0.75, 0.5] * 2] * 2)
    odd = np.tile(np.arange(10) / 10, (2, 1))
    other = np.full((2, 10), 0.5)
    result = comparison.split_by_difficulty(
        results({"sft": even, "dpo": other}, halves={"sft": (even, odd), "dpo": (other, other)})
    )
    assert [group["problems"] for group in result] == [2] * 5
    # The hardest are problems 1 and 6, on which the other half is right 0.1 and 0.6 of the time.
    hardest, *_, easiest = result
    assert hardest["policies"]["sft"]["value"] == pytest.approx(0.35)
    assert easiest["policies"]["sft"]["value"] == pytest.approx(0.25)
    assert hardest["policies"]["dpo"]["value"] == 0.5


def test_of_fewer_than_ten_problems_there_are_no_fifths():
    # Seven problems would be fifths of 2, 2, 1, 1 and 1: the second is not the easiest.
    seven = np.tile(np.arange(7) / 8, (2, 1))
    metrics = comparison.compare_policies(results({"sft": seven}))
    assert metrics["difficulty"] == []
    assert tables.tabulate_difficulty(metrics) == []


def test_luck_does_not_come_back():
    # All problems are equally hard: whatever looks hard was unlucky, and is no longer.
    stream = np.random.default_rng(1)
    even, odd = stream.binomial(4, 0.5, (2, 2, 5000)) / 4
    result = comparison.split_by_difficulty(results({"sft": even}, halves={"sft": (even, odd)}))
    honest = [group["policies"]["sft"]["value"] for group in result]
    assert np.abs(np.array(honest) - 0.5).max() < 0.03


THREE = results({"sft": SFT}, seeds=[0, 1, 2])


def differences_of(*tables, of=THREE):
    family = {str(at): np.asarray(table, dtype=np.float64) for at, table in enumerate(tables)}
    return list(comparison.test_differences(family, of).values())


def test_a_mean_with_each_seeds_own():
    table = np.array([[1.0, 0.5, 0.0], [0.25, 0.75, 0.5], [0.5, 0.5, 0.5]])
    result = comparison.estimate_intervals({"a": table}, THREE)["a"]
    assert result["value"] == 0.5
    assert result["seeds"] == {"0": 0.5, "1": 0.5, "2": 0.5}
    assert 0.0 <= result["low"] < 0.5 < result["high"] <= 1.0


def test_a_share_has_no_interval_beyond_0_and_1_and_a_length_has():
    table = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    result = comparison.estimate_intervals({"share": table, "length": 9 * table}, THREE)
    assert (result["share"]["low"], result["share"]["high"]) == (0.0, 1.0)
    assert result["length"]["low"] < 0.0


def test_a_policy_that_is_always_or_never_right_has_wilsons_interval():
    right, wrong = np.ones((3, 10)), np.zeros((3, 10))
    result = comparison.estimate_intervals(
        {"right": right, "wrong": wrong, "turns": right}, THREE, no_shares=["turns"]
    )
    # 10 of 10 at 95 %: from 1 / (1 + 1.96^2 / 10) = 0.7225; none of 10: the mirror image.
    assert (result["right"]["low"], result["right"]["high"]) == pytest.approx((0.7225, 1), abs=1e-4)
    assert (result["wrong"]["low"], result["wrong"]["high"]) == pytest.approx((0, 0.2775), abs=1e-4)
    assert (result["wrong"]["value"], result["right"]["value"]) == (0.0, 1.0)
    assert (result["turns"]["low"], result["turns"]["high"]) == (1.0, 1.0), "no share"


@pytest.mark.parametrize(("sft", "is_there"), [(0.0, True), (1.0, True), (0.999, False)])
def test_the_report_says_where_an_interval_is_of_problems_alone(sft, is_there):
    spread = np.tile([0.25, 0.75], (2, 5))
    metrics = comparison.compare_policies(results({"sft": np.full((2, 10), sft), "dpo": spread}))
    text = sections.explain_intervals(metrics)
    assert ("on every problem with every seed has Wilson's interval" in text) == is_there


@pytest.mark.parametrize(("last", "is_there"), [(0.75, True), (0.5, False)])
def test_the_report_says_where_the_interval_of_a_constant_difference_is_from(last, is_there):
    spread = np.tile([0.25, 0.75], (2, 5))
    more = spread.copy()
    more[:, -1] = last
    text = sections.explain_intervals(
        comparison.compare_policies(results({"sft": spread, "dpo": more}))
    )
    assert ("A difference that is the same on every problem" in text) == is_there


def test_the_report_names_no_best_policy_where_none_is_ever_right():
    never = {"sft": np.zeros((2, 10)), "dpo": np.zeros((2, 10))}
    text = sections.explain_intervals(comparison.compare_policies(results(never)))
    assert text.endswith("2 policies are equally accurate, and sft, the first, counts as the best.")


def test_the_accuracy_of_a_vote_is_a_share_though_its_sum_rounds():
    # Of 64 samples, all right, 32 give one answer and 32 another: 1 - 1e-16 to 1 + 2e-16.
    of_n = votes.majority_vote(
        np.array([32, 32]), np.array([True, True]), num_unreadable=0, ns=[*range(1, 65)]
    )
    below, above = of_n.min(), of_n.max()
    assert below < 1.0 < above
    always, almost = np.full((2, 3, 10), above)
    always[:, 1], almost[:, 0] = below, 0.8
    result = comparison.estimate_intervals({"always": always, "almost": almost}, THREE)
    # A standard error of 0.02 and t of 9 degrees, 2.262, would end at 1.025.
    assert (result["almost"]["value"], result["almost"]["high"]) == (0.98, 1.0)
    always = result["always"]
    assert (always["low"], always["high"]) == pytest.approx((0.7225, 1.0), abs=1e-4)


def test_a_problem_met_again_is_no_second_trial():
    ten = results({"sft": np.ones((3, 10))}, seeds=[0, 1, 2])
    clustered = replace(ten, clusters=np.array([0, 0, 1, 1, 2, 2, 2, 3, 3, 3]))
    result = comparison.estimate_intervals({"right": np.ones((3, 10))}, clustered)["right"]
    # 4 of 4: from 1 / (1 + 1.96^2 / 4) = 0.5101.
    assert (result["low"], result["high"]) == pytest.approx((0.5101, 1.0), abs=1e-4)


def test_the_same_difference_on_a_few_problems_is_not_sure():
    # 1 - 0.025^(1/5) = 0.5218 of the problems may have -1: 1 - 2 * 0.5218. p by the sign test.
    (result,) = differences_of(np.ones((3, 5)))
    assert (result["low"], result["high"]) == pytest.approx((-0.0436, 1.0), abs=1e-4)
    assert (result["p"], result["significant"], result["detectable"]) == (0.0625, False, None)
    assert tables.format_seed_columns(result, "detectable, points") == {"detectable, points": "–"}


def test_the_same_difference_on_many_problems_is_as_good_as_sure():
    tables = [np.full((3, 20), 1.0), np.full((3, 20), 0.25)]
    always, often = differences_of(*tables)
    # 2 / 2^20, and 2 / 1.25^20, twice the smallest of two by Holm's method
    assert (always["p"], often["p"]) == (pytest.approx(2e-6), pytest.approx(0.023058))
    assert (always["p_holm"], always["significant"]) == (pytest.approx(4e-6), True)
    # Clusters are the trials, not the problems in them.
    twenty = results({"sft": np.ones((3, 20))}, seeds=[0, 1, 2])
    four = replace(twenty, clusters=np.repeat(np.arange(4), 5))
    (result,) = differences_of(tables[0], of=four)
    assert (result["p"], result["significant"]) == (0.125, False)


def test_a_difference_of_shares_ends_at_100_points():
    # Means of two problems, 0.5 and -0.5: a standard error of 0.5 with one degree of freedom.
    (result,) = differences_of([[0.5, -0.5]] * 3)
    assert (result["low"], result["high"]) == (-1.0, 1.0)
    assert result["detectable"] > 1.0
    assert tables.format_seed_columns(result, "detectable, points") == {"detectable, points": "–"}


def test_a_part_of_a_gain_that_is_0_everywhere_has_a_width():
    evaluated = results({"sft": SFT, "dpo": DPO})
    # At the best temperature dpo is always right, sft never; both as sampled: 1 of 4.
    for name, best in (("sft", 0.0), ("dpo", 1.0)):
        evaluated.temperatures[name] = at_temperatures([[0.25] * 3] * 2, best=[[best] * 3] * 2)
    (parts,) = comparison.compare_policies(evaluated)["parts"].values()
    # 1 - 0.025^(1/3) = 0.7076 of the problems may have another difference.
    bounds = {name: (part["low"], part["high"]) for name, part in parts.items()}
    assert bounds["format"] == pytest.approx((-0.7076, 0.7076), abs=1e-4)
    assert bounds["rest"] == pytest.approx((1.0 - 2 * 0.7076, 1.0), abs=1e-4)


@pytest.mark.parametrize(("lenient", "is_there"), [(0.5, True), (1.0, False)])
def test_the_report_says_where_the_interval_of_a_part_is_from(lenient, is_there):
    """Of the parts only the format is 0 everywhere, if the lenient reading changes nothing."""
    spread = np.tile([0.25, 0.75], (2, 5))
    best = 1.0 - spread
    of_format = best.copy()
    best[:, 0] = 0.5
    of_format[:, 0] = lenient
    evaluated = results({"sft": spread, "dpo": spread[:, ::-1]})
    evaluated.temperatures["sft"] = at_temperatures(spread, best=best, lenient=of_format)
    blocks = sections._build_parts(comparison.compare_policies(evaluated))
    texts = [block for block in blocks if isinstance(block, str)]
    assert any("A part that is 0 on every problem" in text for text in texts) == is_there


def test_one_seed_has_such_an_interval_too_and_rewards_which_have_no_bounds_do_not():
    (result,) = differences_of(np.ones((1, 5)), of=results({"sft": SFT}, seeds=[7]))
    assert (result["low"], result["high"]) == pytest.approx((-0.0436, 1.0), abs=1e-4)
    family = {"reward": np.zeros((3, 5))}
    result = comparison.test_differences(family, THREE, are_shares=False)["reward"]
    assert (result["low"], result["high"], result["p"]) == (0.0, 0.0, 1.0)


def test_no_difference_is_not_significant():
    (result,) = differences_of([[0.0, 0.0]] * 3)
    assert (result["value"], result["p"], result["significant"]) == (0.0, 1.0, False)


def test_three_seeds_that_differ_leave_about_two_degrees_of_freedom():
    # Two problems that differ alike: all spread is of seeds, 0.1, 0.2 and 0.3 around 0.2, so the
    # standard error is 0.1 / sqrt(3), t of 2 degrees 4.303.
    (result,) = differences_of([[0.1, 0.1], [0.2, 0.2], [0.3, 0.3]])
    assert result["degrees"] == 2.0
    assert result["high"] == pytest.approx(0.2 + 4.303 * 0.1 / 3**0.5, abs=1e-4)
    assert not result["significant"]


def test_p_values_of_a_family_are_adjusted_together():
    stream = np.random.default_rng(0)
    tables = [stream.normal(gap, 0.3, (3, 40)) for gap in (0.3, 0.02, 0.0)]
    result = differences_of(*tables)
    least = min(result, key=lambda one: one["p"])
    assert least["p_holm"] == pytest.approx(3 * least["p"], abs=2e-6)
    assert all(item["p_holm"] >= item["p"] for item in result)
    assert [item["significant"] for item in result] == [True, False, False]


def test_one_seed_has_an_interval_over_problems_and_no_verdict():
    stream = np.random.default_rng(0)
    table = stream.normal(0.3, 0.1, (1, 60))
    (result,) = differences_of(table, of=results({"sft": SFT}, seeds=[7]))
    error = table.std(ddof=1) / 60**0.5
    assert result["high"] == pytest.approx(table.mean() + 2.001 * error, abs=1e-4)
    assert result["seeds"] == {"7": pytest.approx(table.mean(), abs=1e-6)}
    assert result["p"] is result["p_holm"] is result["significant"] is result["detectable"] is None


def test_the_captions_of_one_seed_promise_no_p_values():
    stream = np.random.default_rng(0)
    evaluated = results({name: stream.random((1, 20)) for name in ("sft", "dpo")}, seeds=[0])
    blocks = sections._build_policies(comparison.compare_policies(evaluated))
    captions = [block.caption for block in blocks if isinstance(block, sections.CaptionedTable)]
    assert captions[1] == "Accuracy, greedy and by majority"


def test_no_comparison_at_all():
    assert comparison.test_differences({}, THREE) == {}


def test_of_a_single_problem_there_is_no_interval():
    with pytest.raises(ValueError, match=r"at least two test problems.* found 1\. Raise"):
        comparison.compare_policies(results({"sft": [[0.5]] * 2, "dpo": [[1.0]] * 2}))
