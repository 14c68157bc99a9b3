"""Controls: the four outcomes, families of their own, and no trace in what is compared without."""

import numpy as np
import pytest

from stages.records.problems import Prompt
from stages.report import comparison, controls
from stages.report.estimates import BEST_TEMPERATURE, FIELDS, Results
from stages.report.sharpening import PolicyTemperatures
from stages.rewards.own import coin

SEEDS = [0, 1, 2]
NOISE = np.random.default_rng(0).normal(0.0, 0.02, (5, 3, 30))
SFT = 0.5 + NOISE[0]
ROWS = {
    "coin": {"control": "no_effect", "from": "sft"},
    "shuffled": {"control": "no_effect", "from": "dpo"},
    "format": {"control": "no_skill", "from": "sft"},
}


def results(**tables):
    names = (*FIELDS, BEST_TEMPERATURE, "majority/4", "pass/4", "best_of/outcome/4",
             "weighted/outcome/4", "best_of/format/4", "weighted/format/4")  # fmt: skip
    return Results(
        seeds=SEEDS, ids=[str(at) for at in range(30)], num_samples=16, ns=[4],
        tables={name: dict.fromkeys(names, table) for name, table in tables.items()},
        halves={name: (table, table) for name, table in tables.items()},
        metrics={name: {seed: {"dev_accuracy": 0.5} for seed in SEEDS} for name in tables},
        confidence=0.95,
        temperatures={
            name: PolicyTemperatures(
                sampled=1.0, dev={1.0: table}, test={1.0: table}, lenient={1.0: table}
            )
            for name, table in tables.items()
        },
    )  # fmt: skip


EVERY = results(
    sft=SFT, dpo=0.8 + NOISE[1], ppo=0.62 + NOISE[2],
    coin=SFT + 0.1 * (NOISE[4] - NOISE[4].mean()), shuffled=0.8 + NOISE[1] + 0.001,
    format=0.6 + NOISE[3],
)  # fmt: skip


@pytest.mark.parametrize(
    ("significant", "low", "high", "outcome"),
    [
        (False, -0.01, 0.015, "none"),
        (False, -0.01, 0.03, "undecided"),
        (True, 0.001, 0.015, "different"),
        (None, -0.001, 0.001, "untested"),
    ],
)
def test_only_a_narrow_interval_shows_that_there_is_no_difference(significant, low, high, outcome):
    difference = {"significant": significant, "low": low, "high": high}
    assert controls.judge_no_effect(difference) == outcome


def test_each_is_compared_with_its_initial_policy_in_the_family_of_its_kind():
    metrics = controls.compare_controls(EVERY, ROWS)
    without_effect = metrics["differences"]["no_effect"]
    assert {name: row["value"] for name, row in without_effect.items()} == {
        "coin": 0.0, "shuffled": 0.001,
    }  # fmt: skip
    assert without_effect["coin"]["outcome"] == "none"
    # Spread of 0.002 over seeds and problems: a standard error of 0.0006 at most.
    assert 0.0 < without_effect["coin"]["bound"] < 0.002
    (alone,) = metrics["differences"]["no_skill"].values()
    assert alone["p_holm"] == alone["p"], "a family of one"
    assert alone["value"] == pytest.approx(0.1, abs=0.01)
    assert set(metrics["beyond"]) == {"dpo - format", "ppo - format"}
    assert metrics["beyond"]["dpo - format"]["value"] == pytest.approx(0.2, abs=0.01)


def test_a_policy_that_is_never_right_before_or_after_shows_no_lack_of_an_effect():
    never = results(sft=np.zeros((3, 30)), coin=np.zeros((3, 30)))
    coin = {"coin": ROWS["coin"]}
    (difference,) = controls.compare_controls(never, coin)["differences"]["no_effect"].values()
    # 1 - 0.025^(1/30)
    assert (difference["outcome"], difference["bound"]) == ("undecided", 0.115703)


def test_the_other_policies_are_compared_as_if_there_were_no_controls():
    alone = results(sft=SFT, dpo=0.8 + NOISE[1], ppo=0.62 + NOISE[2])
    rest = controls.leave_out(EVERY, ROWS)
    assert comparison.compare_policies(rest) == comparison.compare_policies(alone)
    metrics = {"verdict": ["one"]}
    controls.add_controls(metrics, EVERY, {}, has_answers=True)
    assert metrics == {"verdict": ["one"]}


@pytest.mark.parametrize(("shift", "says"), [(0.1, "a gain"), (-0.1, "a loss")])
def test_a_coin_that_moves_accuracy_is_a_warning_before_the_verdict(shift, says):
    moved = results(sft=SFT, coin=SFT + shift + NOISE[4] / 10)
    metrics = {"verdict": ["one"]}
    controls.add_controls(metrics, moved, {"coin": ROWS["coin"]}, has_answers=True)
    warning, *rest = metrics["verdict"]
    assert warning.startswith("Warning: coin ")
    assert f"{100 * shift:+.1f} points" in warning
    assert says in warning
    assert rest == ["one"], "and nothing says that all is as it should be"


def test_a_control_without_effect_says_how_far_from_0_its_interval_reaches():
    no_effect = {
        "coin": {"value": 0.001, "significant": False, "outcome": "none", "bound": 0.012},
        "shuffled": {"value": 0.0, "significant": False, "outcome": "none", "bound": 0.007},
        "noise": {"value": 0.01, "significant": False, "outcome": "undecided", "bound": 0.126},
    }
    content = {"margin": 0.02, "from": dict.fromkeys(no_effect, "sft")}
    both, undecided = controls.describe_controls(
        content | {"differences": {"no_effect": no_effect}}
    )
    assert both == (
        "With nothing to learn coin and shuffled do not differ from where training started, as it "
        "should be: the intervals of their differences lie within ±1.2 points."
    )
    assert undecided == (
        "With nothing to learn noise does not differ significantly from sft, which is no proof "
        "that there is no difference: the interval reaches 12.6 points, and up to 2 would count as "
        "none."
    )
    (alone,) = controls.describe_controls(
        content | {"differences": {"no_effect": {"shuffled": no_effect["shuffled"]}}}
    )
    assert alone == (
        "With nothing to learn shuffled does not differ from where training started, as it should "
        "be: the interval of the difference lies within ±0.7 points."
    )


def test_a_policy_that_is_no_better_than_a_control_without_skill_is_named():
    near = results(sft=SFT, dpo=0.8 + NOISE[1], ppo=0.6 + NOISE[3], format=0.6 + NOISE[3])
    (sentence,) = controls.describe_controls(
        controls.compare_controls(near, {"format": ROWS["format"]})
    )
    assert sentence.endswith("Significantly better than each of these: dpo; not so: ppo.")


def test_without_gold_answers_it_says_that_controls_are_not_compared():
    metrics = {"verdict": []}
    controls.add_controls(metrics, EVERY, ROWS, has_answers=False)
    assert metrics == {"verdict": [controls.WITHOUT_ANSWERS]}


def test_the_coin_falls_as_often_on_both_sides_and_again_on_the_same():
    prompts = [
        Prompt(id=f"p{at}", task="solve", question="", prompt="", prompt_ids=[1], answer="7")
        for at in range(40)
    ]
    thrown = [coin.reward(prompt, f"#### {n}") for prompt in prompts for n in range(40)]
    assert thrown == [coin.reward(prompt, f"#### {n}") for prompt in prompts for n in range(40)]
    assert set(thrown) == {0.0, 1.0}
    assert np.mean(thrown) == pytest.approx(0.5, abs=0.04)  # three standard errors
