"""Policies compared by hand: families of tests, intervals, parts of a gain, controls, forecasts.

Tables are [seed][problem]; `results` has one table a policy for every estimate but those replaced.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from stages.algorithms.statistics import crossed_means
from stages.records import lines
from stages.records.pools import ProblemResult, ScoredPrompt
from stages.report import (
    comparison,
    controls,
    estimates,
    forecast,
    reward_comparison,
    sharpening,
    verdict,
)
from stages.report.estimates import BEST_TEMPERATURE, FIELDS, Results
from stages.report.forecast import Design
from stages.report.sharpening import PolicyTemperatures

REWARDS = ("outcome", "mean_logprob", "format", "longest", "shortest")
WAYS = [f"{way}/{reward}/4" for way in ("best_of", "weighted") for reward in REWARDS]
NAMES = [*FIELDS, BEST_TEMPERATURE, "majority/4", "pass/4", "pass/16", *WAYS]


def at_temperatures(sampled, best=None, lenient=None, num_dev=sharpening.MIN_DEV_PROBLEMS):
    """Accuracies as sampled at 1, and at 0, which is the best on the dev problems."""
    best = sampled if best is None else np.asarray(best)
    return PolicyTemperatures(
        sampled=1.0, test={1.0: np.asarray(sampled), 0.0: best},
        dev={1.0: np.zeros((len(sampled), num_dev)), 0.0: np.ones((len(sampled), num_dev))},
        lenient={1.0: np.asarray(sampled), 0.0: best if lenient is None else np.asarray(lenient)},
    )  # fmt: skip


def results(accuracy, *, halves=None, clusters=None, **replaced):
    tables = {name: np.asarray(table, dtype=np.float64) for name, table in accuracy.items()}
    num_seeds, num_problems = next(iter(tables.values())).shape
    seeds = list(range(num_seeds))
    return Results(seeds=seeds, ids=[f"p{at}" for at in range(num_problems)], num_samples=16,
        ns=[4], tables={n: dict.fromkeys(NAMES, t) | replaced.get(n, {}) for n,
        t in tables.items()}, halves=halves or {name: (table, table) for name,
        table in tables.items()},
        metrics={name: {seed: {"dev_accuracy": table.mean(), "auc/outcome": 0.7} for seed in seeds}
        for name, table in tables.items()}, confidence=0.95, clusters=clusters,
        temperatures={name: at_temperatures(table) for name, table in tables.items()})  # fmt: skip


SFT, DPO, GRPO = [[0.25, 0.5, 0.0]] * 2, [[0.5, 0.75, 0.25]] * 2, [[0.75, 1.0, 0.5]] * 2


def noise(shape, shift=0.0, scale=0.3, seed=0):
    return np.random.default_rng(seed).normal(shift, scale, shape)


def values(rows):
    return {name: row["value"] for name, row in rows.items()}


def test_policies_are_compared_with_the_baseline_and_each_other():
    found = comparison.compare_policies(results({"sft": SFT, "dpo": DPO, "grpo": GRPO}))
    assert values(found["gains"]["mean_accuracy"]) == {"dpo": 0.25, "grpo": 0.5}
    assert values(found["pairs"]) == {"grpo - dpo": 0.25}, "the larger mean is first"
    assert values(found["policies"]["sft"])["mean_accuracy"] == 0.25
    assert (found["best_on_dev"], found["baseline"]) == ("grpo", "sft")
    assert (found["n"], found["num_problems"], found["seeds"]) == (4, 3, [0, 1])
    alone = comparison.compare_policies(results({"sft": SFT}))
    assert alone["gains"]["mean_accuracy"] == alone["pairs"] == {}


def test_choices_are_compared_with_a_sample_the_majority_and_the_format_alone():
    parts = {"majority/4": np.array(SFT), "weighted/format/4": np.array(GRPO),
        BEST_TEMPERATURE: np.array(GRPO)}  # fmt: skip
    of = results({"sft": DPO}, sft=parts)
    found = comparison.compare_policies(of)["selection"]["sft"]
    # Own log-probability is no reward: neither tested nor counted among those that are.
    assert values(found["over_majority"]) == {"best_of/outcome": 0.25, "weighted/outcome": 0.25}
    assert values(found["over_format"]) == {"best_of/outcome": 0.0, "weighted/outcome": -0.25}
    assert values(found["over_single"]) == {"best_of/outcome": -0.25, "weighted/outcome": -0.25}
    del of.tables["sft"][BEST_TEMPERATURE]
    found = comparison.compare_selection(of, "sft")
    assert values(found["over_single"]) == {"best_of/outcome": 0.0, "weighted/outcome": 0.0}
    assert len(found["accuracy"]) == len(WAYS)
    assert found["auc"] == {"outcome": {"value": 0.7, "seeds": {"0": 0.7, "1": 0.7}}}


def test_p_values_and_detectable_differences_are_those_of_the_whole_family():
    family = {str(gap): noise((3, 40), gap, seed=at) for at, gap in enumerate((0.3, 0.02, 0))}
    of = results({"sft": np.zeros((3, 40))})
    found = comparison.test_differences(family, of)
    (alone,) = comparison.test_differences({"0.3": family["0.3"]}, of).values()
    first = found["0.3"]
    assert first["p_holm"] == pytest.approx(3 * first["p"], abs=2e-6)
    assert first["p"] == alone["p"] == alone["p_holm"]
    assert first["detectable"] > alone["detectable"], "at a third of the level"
    assert [row["significant"] for row in found.values()] == [True, False, False]
    assert comparison.test_differences({}, of) == {}


def p_value(ratio, degrees):
    return 2 * special.stdtr(degrees, -ratio)


FEW = 1 - 2.776445 * 3**0.5 / 5  # t of 4 degrees: 3 of 5 problems may differ by 1
TWENTY = np.ones((3, 20))
DIFFERENCES = {
    # tables of a family, clusters, what is expected of the first
    "the_same_on_few": ([np.ones((3, 5))], None, {"low": FEW, "high": 1,
                        "p": p_value(5 / 3**0.5, 4), "detectable": None, "seed_share": 0}),
    "of_one_seed": ([np.ones((1, 5))], None, {"low": FEW, "p": None, "p_holm": None,
                    "significant": None, "detectable": None, "seed_share": None}),
    "of_two_seeds": ([np.ones((2, 5))], None, {"low": FEW, "p": None, "significant": None}),
    # The second is 1 on all and comes first: twice and once.
    "the_same_on_many": ([TWENTY / 4, TWENTY], None, {"p": p_value(5 / 3**0.5, 19),
                         "p_holm": p_value(5 / 3**0.5, 19), "significant": True}),
    "clusters_are_trials": ([TWENTY], np.repeat(np.arange(4), 5), {"p": p_value(4 / 3**0.5, 3)}),
    "ends_at_100_points": ([[[0.5, -0.5]] * 3], None, {"low": -1, "high": 1}),
    "no_difference": ([np.zeros((3, 2))], None, {"value": 0, "p": 1, "significant": False}),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_difference_by_hand(name):
    family, clusters, expected = DIFFERENCES[name]
    family = {str(at): np.asarray(table, dtype=np.float64) for at, table in enumerate(family)}
    of = results({"sft": family["0"]}, clusters=clusters)
    found = comparison.test_differences(family, of)["0"]
    assert {key: found[key] for key in expected} == pytest.approx(expected, abs=1e-4)


def test_differences_of_rewards_have_no_bounds():
    of = results({"sft": np.zeros((3, 5))})
    found = comparison.test_differences({"r": np.zeros((3, 5))}, of, are_shares=False)["r"]
    assert (found["low"], found["high"], found["p"]) == (0.0, 0.0, 1.0)


W10 = 1 - 2.262157 * 3**0.5 / 10  # t of 9 degrees: 3 of 10 problems may be wrong
SHARES = {
    # table, clusters, no_shares, low, high
    "spread": ([[0, 0, 1], [0, 0, 1], [0, 1, 1]], None, (), 0.0, 1.0),
    "always_right": (np.ones((3, 10)), None, (), W10, 1.0),
    # as sums of votes may be
    "right_but_for_rounding": ([[1 + 2e-16, *[1.0] * 8, 1 - 1e-16]] * 3, None, (), W10, 1.0),
    "never_right": (np.zeros((3, 10)), None, (), 0.0, 1 - W10),
    "no_share": (np.ones((3, 10)), None, ("table",), 1.0, 1.0),
    "four_clusters": (np.ones((3, 10)), np.array([0, 0, 1, 1, 2, 2, 2, 3, 3, 3]), (), 0.0, 1.0),
}


@pytest.mark.parametrize("name", SHARES)
def test_an_interval_of_shares_by_hand(name):
    table, clusters, no_shares, low, high = SHARES[name]
    table = np.asarray(table, dtype=np.float64)
    of = results({"sft": table}, clusters=clusters)
    (found,) = comparison.estimate_intervals({"table": table}, of, no_shares=no_shares).values()
    assert (found["low"], found["high"]) == pytest.approx((low, high), abs=1e-6)
    assert list(found["seeds"].values()) == pytest.approx(table.mean(axis=1), abs=1e-6)
    length = comparison.estimate_intervals({"table": 9 * table}, of)["table"]
    assert name != "spread" or length["low"] < 0.0


def test_fifths_are_chosen_by_half_of_the_samples_and_measured_by_the_others():
    even = np.array([[1.0, 0.0, 0.25, 0.75, 0.5] * 2] * 2)
    odd, other = np.tile(np.arange(10) / 10, (2, 1)), np.full((2, 10), 0.5)
    halves = {"sft": (even, odd), "dpo": (other, other)}
    found = comparison.split_by_difficulty(results({"sft": even, "dpo": other}, halves=halves))
    assert [group["problems"] for group in found] == [2] * 5
    # The hardest are problems 1 and 6, on which the other half has 0.1 and 0.6.
    assert [round(group["policies"]["sft"]["value"], 6)
        for group in (found[0], found[-1])] == [0.35, 0.25]  # fmt: skip
    assert found[0]["policies"]["dpo"]["value"] == 0.5
    assert comparison.split_by_difficulty(results({"sft": np.tile(np.arange(9) / 9, (2, 1))})) == []


def test_of_a_single_problem_there_is_no_interval():
    with pytest.raises(ValueError, match="found 1"):
        comparison.compare_policies(results({"sft": [[0.5]] * 2, "dpo": [[1.0]] * 2}))


# --- temperatures and the parts of a gain
def test_the_best_temperature_is_of_all_seeds_on_dev_and_of_equals_the_highest():
    dev = {1.0: np.full((2, 2), 0.5), 0.5: np.array([[1.0, 1.0], [0.25, 0.75]]),
           0.0: np.array([[0.5, 1.0], [1.0, 0.5]])}  # fmt: skip
    # 0.5, 0.75 and 0.75; the second seed alone would have chosen 0.
    assert sharpening.choose_temperature(dev) == 0.5
    assert sharpening.choose_temperature({1.0: dev[1.0], 0.0: dev[0.0]}) == 0.0
    many = {temperature: np.tile(table, 40) for temperature, table in dev.items()}
    right, wrong = np.ones((2, 2)), np.zeros((2, 2))
    assert replace(at_temperatures(right, wrong), dev=many).best == 0.5
    # 74 dev problems are too few to choose by
    bests = [at_temperatures(wrong, right, num_dev=number).best for number in (74, 75)]
    assert bests == [1.0, 0.0]


PARTS = {
    # sampled, best and lenient accuracy of the baseline and of the policy, and the parts
    "all_three": ((0.5, 0.75, 0.875), (0.875, 1.0, 1.0), (0.125, 0.125, 0.125)),
    "narrower_alone": ((0.5, 0.75, 0.75), (0.75, 0.75, 0.75), (0.25, 0.0, 0.0)),
    "format_alone": ((0.5, 0.5, 0.75), (0.75, 0.75, 0.75), (0.0, 0.25, 0.0)),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_a_gain_by_hand_add_up_to_it(name):
    *policies, expected = PARTS[name]
    of = results({"sft": [[policies[0][0]] * 100] * 3, "dpo": [[policies[1][0]] * 100] * 3})
    for policy, (sampled, *others) in zip(("sft", "dpo"), policies, strict=True):
        of.temperatures[policy] = at_temperatures(*([[x] * 100] * 3 for x in (sampled, *others)))
    found = comparison.compare_policies(of)
    parts = {part: of_policies["dpo"]["value"] for part, of_policies in found["parts"].items()}
    assert parts == dict(zip(("sharpening", "format", "rest"), expected, strict=True))
    assert sum(parts.values()) == found["gains"]["mean_accuracy"]["dpo"]["value"]
    # The same on all problems, of which 3 may differ by 1; t of 99 degrees of freedom.
    part, half = found["parts"]["rest"]["dpo"], 1.984217 * 3**0.5 / 100
    bounds = part["value"] - half, part["value"] + half
    assert (part["low"], part["high"]) == pytest.approx(bounds, abs=1e-5)
    assert part["significant"] == (part["value"] > half)


# --- estimates of problems
def problem(num_correct, **fields):
    at = {name: {"1": 0.0, "4": 0.0} for name in ("pass", "majority")}
    empty = dict.fromkeys(ProblemResult.__dataclass_fields__, 0.0) | {"auc": {},
        "auc_in_format": {}}  # fmt: skip
    row = {"id": "p", "num_samples": 16, "num_correct": num_correct, "accuracy_at": at}
    return ProblemResult(**empty | row | fields)


def test_pass_at_all_samples_is_whether_any_is_right():
    found = estimates.collect_estimates([problem(0), problem(1), problem(16)])
    assert found["pass/16"].tolist() == [0.0, 1.0, 1.0]
    assert found["pass/8"].tolist() == [0.0, 0.5, 1.0], "half of the subsets hold it"
    assert found["pass/4"].tolist() == [0.0, 0.0, 0.0], "as `evaluate` wrote it"


def test_areas_are_averaged_over_the_problems_that_have_one():
    rows = [problem(1, auc={"r": area}, auc_in_format={"r": None}) for area in (0.5, None, 1.0)]
    found = estimates.average_results(rows)
    assert found["auc/r"] == 0.75
    assert "auc_in_format/r" not in found
    assert (found["num_problems"], found["num_samples"]) == (3, 16)


@pytest.mark.parametrize(("num_samples", "halves"),
    [(5, (2 / 3, 1 / 2)), (4, (1.0, 0.5)), (1, (2, 1))])  # fmt: skip
def test_samples_of_even_and_odd_index_are_halves(num_samples, halves):
    row = problem(3, num_samples=num_samples, even_correct=2)
    even, odd = estimates._halves([[row]])
    assert (even.item(), odd.item()) == pytest.approx(halves)


def test_problems_that_one_policy_alone_solves_by_hand():
    policy = np.array([[0.0, 0.0625, 1.0, 0.0, 1.0], [0.5, 0.5, 0.5, 0.0, 1.0]])
    baseline = np.array([[0.0625, 0.0, 0.5, 0.0, 0.5], [0.0, 0.0, 0.5, 0.25, 0.5]])
    found = comparison.count_solved(policy, baseline)
    seeds = {name: row["seeds"] for name, row in found.items()}
    assert seeds == {"only_policy": [1, 2], "only_baseline": [1, 1], "neither": [1, 0]}
    assert found["only_policy"]["value"] == 1.5


# --- controls
NOISE = [noise((3, 30), 0.0, 0.02, seed) for seed in range(5)]
BASE = 0.5 + NOISE[0]
ROWS = {
    "coin": {"control": "no_effect", "from": "sft"},
    "shuffled": {"control": "no_effect", "from": "dpo"},
    "format": {"control": "no_skill", "from": "sft"},
}
EVERY = {"sft": BASE, "dpo": 0.8 + NOISE[1], "ppo": 0.62 + NOISE[2],
    "coin": BASE + 0.1 * (NOISE[4] - NOISE[4].mean()), "shuffled": 0.8 + NOISE[1] + 0.001,
    "format": 0.6 + NOISE[3]}  # fmt: skip


@pytest.mark.parametrize(
    ("significant", "low", "high", "outcome"),
    [(False, -0.01, 0.015, "none"), (False, -0.01, 0.03, "undecided"),
     (False, -0.03, 0.01, "undecided"), (None, -0.01, 0.01, "untested"),
     (True, 0.001, 0.015, "different")],
)  # fmt: skip
def test_only_a_narrow_interval_shows_that_a_control_has_no_effect(significant, low, high, outcome):
    difference = {"significant": significant, "low": low, "high": high}
    assert controls.judge_no_effect(difference) == outcome


def test_controls_are_compared_with_their_initial_policy_in_the_family_of_their_kind():
    found = controls.compare_controls(results(EVERY), ROWS)
    without = found["differences"]["no_effect"]
    assert values(without) == {"coin": 0.0, "shuffled": 0.001}
    # Spread of 0.002 over seeds and problems: a standard error of 0.0006 at most.
    assert without["coin"]["outcome"] == "none"
    assert 0.0 < without["coin"]["bound"] < 0.002
    (alone,) = found["differences"]["no_skill"].values()
    assert alone["p_holm"] == alone["p"], "a family of one"
    assert values(found["beyond"]) == pytest.approx({"dpo - format": 0.2, "ppo - format": 0.02},
        abs=0.01)  # fmt: skip
    never = results({"sft": np.zeros((3, 30)), "coin": np.zeros((3, 30))})
    found = controls.compare_controls(never, {"coin": ROWS["coin"]})["differences"]["no_effect"]
    assert (found["coin"]["outcome"], found["coin"]["bound"]) == ("undecided", 0.118081)


def test_other_policies_are_compared_as_if_there_were_no_controls():
    rest = controls.leave_out(results(EVERY), ROWS)
    alone = results({name: EVERY[name] for name in ("sft", "dpo", "ppo")})
    assert comparison.compare_policies(rest) == comparison.compare_policies(alone)
    metrics = {"verdict": ["one"]}
    controls.add_controls(metrics, results(EVERY), {}, has_answers=True)
    assert metrics == {"verdict": ["one"]}
    controls.add_controls(metrics, results(EVERY), ROWS, has_answers=False)
    assert metrics == {"verdict": ["one", controls.WITHOUT_ANSWERS]}


@pytest.mark.parametrize("shift", [0.1, -0.1])
def test_a_coin_that_moves_accuracy_is_a_warning_before_the_verdict(shift):
    moved = results({"sft": BASE, "coin": BASE + shift + NOISE[4] / 10})
    metrics = {"verdict": ["x"]}
    controls.add_controls(metrics, moved, {"coin": ROWS["coin"]}, has_answers=True)
    warning, rest = metrics["verdict"]
    assert (f"{100 * shift:+.1f}" in warning, rest) == (True, "x")


def test_policies_no_better_than_a_control_without_skill_are_not_named():
    near = results({"sft": BASE, "dpo": 0.8 + NOISE[1], "ppo": 0.6 + NOISE[3],
        "format": 0.6 + NOISE[3]})  # fmt: skip
    found = controls.compare_controls(near, {"format": ROWS["format"]})
    assert controls.describe_no_skill("format", found).endswith("better than it: dpo.")


# --- forecasts
DESIGN = Design(num_seeds=3, num_problems=100, num_samples=8, num_differences=4, confidence=0.95)


@pytest.mark.parametrize("num_seeds", [3, 6])
def test_of_100_experiments_80_detect_the_forecast_difference(num_seeds):
    design = DESIGN._replace(num_seeds=num_seeds)
    expected, stream = forecast.forecast_comparison(design), np.random.default_rng(num_seeds)
    seed = stream.normal(expected.detectable, 3e-4**0.5, (num_seeds, 1, 3000))
    problem = stream.normal(0.0, 0.025**0.5, (1, 100, 3000))
    sample = stream.normal(0.0, (0.27 / 8) ** 0.5, (num_seeds, 100, 3000))
    means = crossed_means.estimate_means(seed + problem + sample, confidence=0.95)
    detected = means.p_value <= 0.05 / design.num_differences
    assert detected.mean() == pytest.approx(0.8, abs=0.03)  # four standard errors
    assert np.median(means.high - means.value) == pytest.approx(expected.half_width, rel=0.05)


def test_a_plan_compares_neither_the_baseline_nor_a_control():
    params = {"seeds": [0, 1, 2], "baseline": "sft", "sampling": {"test": {"num_samples": 16}},
              "evaluation": {"confidence": 0.95}}  # fmt: skip
    rows = {"sft": {}, "dpo": {}, "coin": {"control": "no_effect"}}
    design = forecast.plan_comparison(params, {"policies": rows}, 530)
    assert design == Design(3, 530, 16, 1, 0.95)


# --- rewards in place of answers
def test_wins_are_of_all_pairs_of_samples_and_ties_are_half():
    rewards, others = np.array([[[1.0, 2.0]]]), np.array([[[1.0, 0.0]]])
    assert reward_comparison.win_rates(rewards, others).tolist() == [[3.5 / 4]]
    assert reward_comparison.win_rates(others, rewards).tolist() == [[0.5 / 4]]
    assert reward_comparison.win_rates(rewards, rewards).tolist() == [[0.5]]


def write_scores(folder, *, scales=(1.0, 2.0, 3.0), scorers=("people",)):
    for (policy, shift), (seed, scale) in itertools.product(
        (("sft", 0.0), ("dpo", 0.5)), enumerate(scales)
    ):
        rows = [ScoredPrompt(id=str(at), truncation_rate=0.0, mean_tokens=5.0 + shift,
            scores={name: (scale * (row + shift)).tolist() for name in scorers}) for at,
            row in enumerate(noise((30, 4), scale=1.0, seed=seed))]  # fmt: skip
        lines.write_lines(folder / f"{policy}/{seed}/per_problem.jsonl", rows)
    read = reward_comparison.read_scored_results(folder, ["sft", "dpo"], range(len(scales)), 0.95)
    return reward_comparison.compare_by_rewards(read)


def test_scores_are_compared_and_wins_do_not_depend_on_their_scale(tmp_path):
    found, plain = (write_scores(tmp_path / "a"),
        write_scores(tmp_path / "b", scales=(1.0, 1.0, 1.0)))  # fmt: skip
    gain = found["gains"]["reward/people"]["dpo"]
    assert list(gain["seeds"].values()) == pytest.approx([0.5, 1.0, 1.5])
    assert gain["value"] == pytest.approx(1.0)
    assert "wins/people" not in found["policies"]["sft"], "half by definition, and no estimate"
    assert found["policies"]["dpo"]["wins/people"] == plain["policies"]["dpo"]["wins/people"]
    one = write_scores(tmp_path / "c", scales=(1.0,))
    assert one["gains"]["reward/people"]["dpo"]["significant"] is None
    none = write_scores(tmp_path / "d", scales=(1.0,), scorers=())
    assert (none["gains"], len(verdict.write_reward_verdict(none))) == ({}, 1)
