from dataclasses import replace

import presets
import pytest
import torch
from answers import NOTHING, Answers
from pydantic import ValidationError

from stages.algorithms.group_advantages import normalised_sum
from stages.rewards.completion_rewards import CompletionRewards
from stages.rewards.composition import Cap, Component, Composition, compose_rewards

SHIPPED = presets.CONTENT
DRAWN = Answers(
    texts=["3 + 4 = 7\n#### 7", "#### 7", "3 + 4 = 8\n#### 8", "no idea"], golds=["7", "7"],
    group_size=2,
)  # fmt: skip
PLAIN = {"cap": None, "normalise": {"kind": "none"}}


def judge(config, drawn=DRAWN, **available):
    return compose_rewards(Composition.model_validate(config), drawn, replace(NOTHING, **available))


def scored(*values):
    return lambda: CompletionRewards(totals=list(values))


def own(weight=1.0, **changes):
    component = {"value": {"kind": "own"}, "weight": weight, **PLAIN} | changes
    return {"components": {"mine": component}, "combine": {"kind": "sum"}}


def test_the_rule_is_1_for_the_answer_and_a_fifth_for_the_format():
    """Right and shown; right only; shown only; neither. In float32, as the loops add them."""
    result = judge(SHIPPED["rule"])
    whole, fifth = torch.tensor(1.0), torch.tensor(0.2)
    assert result.totals == [float(whole + fifth), 1.0, float(fifth), 0.0]
    assert result.parts == {"answer": [1, 1, 0, 0], "final_line": [1, 0, 1, 0]}
    assert result.statistics() == {"reward/answer": 0.5, "reward/final_line": 0.5}


def test_the_two_schemes_of_r1s_reproductions():
    box, tags = r"so \boxed{7}", "<think>3 + 4</think><answer>7</answer>"
    drawn = Answers([box, "#### 7", tags, r"\boxed{8}", "<answer>7</answer>"])
    assert judge(SHIPPED["answer_boxed"], drawn).totals == [1.5, 1.0, 1.0, 0.5, 1.0]
    assert judge(SHIPPED["answer_tags"], drawn).totals == pytest.approx([1, 1, 1.4, 0, 1.2])


def test_gdpo_is_the_normalised_sum_of_the_parts():
    actual = judge(SHIPPED["rule_gdpo"])
    expected = normalised_sum(
        torch.tensor([[1.0, 1, 0, 0], [1.0, 0, 1, 0]]), torch.tensor([1.0, 0.2]),
        torch.tensor([0, 0, 1, 1]), counted=torch.ones(4, dtype=torch.bool), ddof=1, eps=1e-4,
    )  # fmt: skip
    assert actual.totals == expected.tolist()
    assert actual.parts["answer"] == [1, 1, 0, 0], "logged as found"


def test_a_model_alone_is_its_score():
    assert judge(SHIPPED["model"], scorer=scored(0.25, -3.0, 0.5, 8.0)).totals == [
        0.25, -3.0, 0.5, 8.0
    ]  # fmt: skip


def test_capped_then_normalised_then_weighted():
    """0.2 times: 5 and -5 of 9 and -9, a standard deviation of 7.071 apart; 1 and 1 are silent."""
    result = judge(SHIPPED["rule_model"], scorer=scored(9.0, -9.0, 1.0, 1.0))
    assert result.totals == pytest.approx([1 + 0.2 * 0.7071, 1 - 0.2 * 0.7071, 0, 0], abs=1e-4)
    assert result.parts["score"] == [9.0, -9.0, 1.0, 1.0]


def test_the_order_of_components_in_the_file_changes_no_bit():
    weights = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 1e6}
    parts = {name: {"value": {"kind": "own"}, "weight": w, **PLAIN} for name, w in weights.items()}
    forward, backward = (
        judge({"components": dict(order), "combine": {"kind": "sum"}}, function=lambda *_: 0.7)
        for order in (parts.items(), reversed(parts.items()))
    )
    assert forward.totals == backward.totals


def test_step_rewards_are_capped_and_weighted_and_paid_besides():
    steps = torch.tensor([[3.0, 0.0, 0.5], [0.0, -3.0, 0.0]])
    ends = steps != 0
    said = CompletionRewards(
        totals=[1.0, 2.0], step_rewards=steps, step_ends=ends, metrics={"m": 1.0}
    )
    config = SHIPPED["model"]["components"]["score"] | {"weight": 2.0}
    config["cap"] = {"low": -1.0, "high": 1.0}
    drawn = Answers(["a", "b"])
    whole = {"components": {"p": config}, "combine": {"kind": "sum"}}
    result = judge(whole, drawn, scorer=lambda: said)
    assert result.totals == [2.0, 4.0], "the cap is the steps'"
    assert result.step_rewards.tolist() == [[2.0, 0.0, 1.0], [0.0, -2.0, 0.0]]
    assert result.parts == {"p": [4.5, -1.0]}
    assert result.metrics == {"m": 1.0}
    config["normalise"] = {"kind": "group", "ddof": 1, "eps": 1e-4}
    with pytest.raises(ValueError, match="'p' of the reward gives step rewards"):
        judge(whole, drawn, scorer=lambda: said)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        *[
            (
                lambda _, text, bad=bad: bad if "8" in text else 0.0,
                r"'mine' .*finite.*completion 2, of prompt 'p1': '3 \+ 4",
            )
            for bad in (float("nan"), float("inf"), -float("inf"), 1e39)
        ],
        (
            lambda _, text: {"#### 7": 1.0}[text],
            r"'mine' .*kind own.*KeyError.*completion 0, of prompt 'p0': '3",
        ),
    ],
)
@pytest.mark.parametrize("cap", [None, {"low": 0.0, "high": 1.0}])
def test_a_value_that_is_not_finite_or_an_error_stops_the_run_with_the_completion(
    function, words, cap
):
    with pytest.raises(ValueError, match=words):
        judge(own(cap=cap), function=function)


def test_a_score_too_few_is_refused():
    with pytest.raises(ValueError, match="expected 4 values, one for each completion, found 3"):
        judge(SHIPPED["model"], scorer=scored(1.0, 2.0, 3.0))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"kind": "none"}, [1.0, 3.0, 5.0, 5.0]),
        # Mean 3.5, squares 6.25 + 0.25 + 2.25 + 2.25 = 11, over 3: standard deviation 1.9149.
        (
            {"kind": "batch", "ddof": 1, "eps": 1e-9},
            pytest.approx([-1.3056, -0.2611, 0.7833, 0.7833], abs=1e-4),
        ),
        # 1 and 3: mean 2, standard deviation 1 with n. Equal values have no spread: exactly 0.
        ({"kind": "group", "ddof": 0, "eps": 1e-9}, [*map(pytest.approx, (-1.0, 1.0)), 0.0, 0.0]),
    ],
)
def test_a_normalised_component_by_hand(config, expected):
    component = Component(value={"kind": "answer"}, weight=1.0, cap=None, normalise=config)
    values = CompletionRewards(totals=[1.0, 3.0, 5.0, 5.0])
    assert component.paid_at_end(values, torch.tensor([0, 0, 1, 1])).tolist() == expected


@pytest.mark.parametrize(
    ("cap", "expected"),
    [
        ({"low": -1.0, "high": 1.0}, [-1.0, 0.5, 1.0]),
        ({"low": None, "high": 1.0}, [-3.0, 0.5, 1.0]),
        ({"low": -1.0, "high": None}, [-1.0, 0.5, 3.0]),
        (None, [-3.0, 0.5, 3.0]),
    ],
)
def test_a_cap_bounds_either_side(cap, expected):
    body = {"value": {"kind": "answer"}, "weight": 1.0, "normalise": {"kind": "none"}}
    component = Component(**body, cap=cap)
    assert component.capped(torch.tensor([-3.0, 0.5, 3.0])).tolist() == expected


@pytest.mark.parametrize(("low", "high"), [(None, None), (1.0, 1.0), (2.0, 1.0)])
def test_a_cap_that_bounds_nothing_or_all_is_refused(low, high):
    with pytest.raises(ValidationError):
        Cap(low=low, high=high)


JUDGE = {"style": "short", "constitution": "none", "min_option_mass": 0.5}


def part(kind="answer", normalise="none", **numbers):
    scaled = {"kind": normalise} | ({} if normalise == "none" else {"ddof": 1, "eps": 1e-4})
    return {"value": {"kind": kind, **numbers}, "weight": 1.0, "cap": None, "normalise": scaled}


def composition(combine="sum", **components):
    scaled = {"kind": combine} | ({} if combine == "sum" else {"ddof": 1, "eps": 1e-4})
    return Composition(components=components, combine=scaled)


STEPS, SCALED_STEPS = (
    part("process", normalise=normalise, credit="sum", zero=0.5) for normalise in ("none", "batch")
)


@pytest.mark.parametrize(
    ("combine", "components", "words"),
    [
        *[("sum", {name: part()}, f"reward/{name} is logged for the whole")
          for name in ("mean", "std", "accuracy")],
        ("normalise", {"a": part(normalise="group"), "b": part()},
         "normalises every component: a needs"),
        ("sum", {"p": SCALED_STEPS}, "component p of kind process gives step rewards"),
        ("normalise", {"p": STEPS, "a": part()}, "component p of kind process gives step rewards"),
        ("sum", {"a": part("judge", **JUDGE), "b": part("scorer")}, "expected one model"),
        ("sum", {"a": part("judge", **JUDGE), "b": STEPS}, "expected one model"),
    ],
)  # fmt: skip
def test_components_that_do_not_go_together_are_refused(combine, components, words):
    with pytest.raises(ValidationError, match=words):
        composition(combine, **components)


def test_step_rewards_go_beside_a_normalised_component():
    """Final lines 1, 0 in both groups: mean 1/2, standard deviation sqrt(1/2)."""
    scores = torch.tensor([[0.0, 0.9], [0.0, 0.5], [0.0, 0.1], [0.0, 0.6]])
    ends = torch.tensor([[False, True]] * 4)
    steps = CompletionRewards(totals=[0.0] * 4, step_rewards=scores, step_ends=ends)
    both = composition(p=STEPS, a=part("final_line", normalise="group"))
    result = compose_rewards(both, DRAWN, replace(NOTHING, scorer=lambda: steps))
    zscore = 0.5 / (0.5**0.5 + 1e-4)
    assert result.totals == pytest.approx([zscore, -zscore, zscore, -zscore], rel=1e-5)
    assert result.step_rewards is not None
    assert result.step_rewards[:, 0].tolist() == [0.0] * 4
    assert result.step_rewards[:, 1].tolist() == pytest.approx([0.4, 0.0, -0.4, 0.1])


def test_it_says_what_it_needs():
    assert not composition(a=part()).needs_model()
    assert composition(a=part("scorer")).needs_model()
    judge = composition(a=part("judge", **JUDGE))
    assert judge.needs_model()
    assert judge.needs_judge()
    assert not composition(a=part("scorer")).needs_judge()
    assert "own" in composition(a=part("own")).kinds()
    assert composition(a=part(), b=part(normalise="batch")).compares() == {"batch"}
    assert composition("normalise", a=part()).compares() == {"batch", "group"}


def test_a_buffer_longer_than_completions_is_refused():
    with pytest.raises(ValueError, match=r"a.value.buffer 9 is more than max_new_tokens 8"):
        composition(a=part("overlong", buffer=9)).check_lengths(8)
    composition(a=part("overlong", buffer=8)).check_lengths(8)


def test_a_judge_that_compares_needs_two():
    composition(a=part()).check_group_size(1, "group_size")
    judge = composition(a=part("judge", **JUDGE))
    judge.check_group_size(2, "group_size")
    with pytest.raises(ValueError, match="group_size is 1"):
        judge.check_group_size(1, "group_size")


def test_every_composition_that_is_shipped_can_be_read():
    shipped = {name for name, preset in SHIPPED.items() if "components" in preset}
    assert {"rule", "model", "answer_boxed", "answer_tags", "judge_wins"} <= shipped
    for name in shipped:
        Composition.model_validate(SHIPPED[name])
