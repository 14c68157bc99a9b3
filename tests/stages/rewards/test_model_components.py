from dataclasses import replace

import pytest
import torch
from answers import NOTHING, Answers
from judged_rows import RuleChooser

from stages.rewards import composition, model_components
from stages.rewards.completion_rewards import CompletionRewards
from stages.rewards.composition import Cap, Component, Composition
from stages.rewards.model_components import MIN_COMPARISONS


def test_it_is_what_the_rewards_model_says():
    said = CompletionRewards(totals=[0.5, -0.5], metrics={"ensemble/disagreement": 0.1})
    assert model_components.model_score(lambda: said) is said


STEPS = torch.tensor([[0.9, 0.0, 0.2], [0.0, 0.6, 0.0]])
ENDS = torch.tensor([[True, False, True], [False, True, False]])
MODEL = CompletionRewards(
    totals=[0.0, 0.0], step_rewards=STEPS, step_ends=ENDS, metrics={"process/steps": 1.5}
)
AVAILABLE = replace(NOTHING, scorer=lambda: MODEL)


def process(credit, zero=0.0, model=MODEL):
    return model_components.step_scores(lambda: model, credit, zero)


WORST = torch.tensor([[False, False, True], [False, True, False]])


@pytest.mark.parametrize(
    ("credit", "zero", "rewards", "ends"),
    [
        ("sum", 0.5, [[0.4, 0.0, -0.3], [0.0, 0.1, 0.0]], ENDS),
        ("min", 0.5, [[0.0, 0.0, -0.3], [0.0, 0.1, 0.0]], WORST),
        # a reward of zero is still a step
        ("sum", 0.6, [[0.3, 0.0, -0.4], [0.0, 0.0, 0.0]], ENDS),
    ],
)
def test_summed_credit_pays_every_step_above_zero_and_min_the_worst_alone(
    credit, zero, rewards, ends
):
    result = process(credit, zero=zero)
    torch.testing.assert_close(result.step_rewards, torch.tensor(rewards))
    assert torch.equal(result.step_ends, ends)
    assert result.metrics == {"process/steps": 1.5}


def composed(credit, cap=None, weight=2.0):
    value = {"kind": "process", "credit": credit, "zero": 0.0}
    component = Component(value=value, weight=weight, cap=cap, normalise={"kind": "none"})
    config = Composition(components={"steps": component}, combine={"kind": "sum"})
    return composition.compose_rewards(config, Answers(["a", "b"]), AVAILABLE)


def test_in_a_composition_the_steps_keep_their_places_and_are_weighted():
    result = composed("min")
    torch.testing.assert_close(
        result.step_rewards, torch.tensor([[0.0, 0.0, 0.4], [0.0, 1.2, 0.0]])
    )
    assert torch.equal(result.step_ends, WORST)
    assert result.totals == [0.0, 0.0]
    assert result.parts["steps"] == pytest.approx([0.2, 0.6])


def test_a_cap_above_zero_pays_nothing_where_no_step_ends():
    result = composed("sum", cap=Cap(low=0.5, high=None), weight=1.0)
    assert result.totals == [0.0, 0.0]
    torch.testing.assert_close(
        result.step_rewards, torch.tensor([[0.9, 0.0, 0.5], [0.0, 0.6, 0.0]])
    )


VERDICTS = {
    ("A", "B"): 0.9, ("B", "A"): 0.3,  # P(A beats B) = 0.8
    ("B", "C"): 0.7, ("C", "B"): 0.5,  # P(B beats C) = 0.6
    ("C", "A"): 0.2, ("A", "C"): 0.6,  # P(C beats A) = 0.3
}  # fmt: skip


def table(first, second):
    return VERDICTS[first, second]


def judged(texts, rule=table, mass=0.9, constitution="correct", **answers):
    chooser = RuleChooser(rule, mass)
    answers.setdefault("golds", ["7"] * 4)
    drawn = Answers(texts, **answers)
    return model_components.win_rate(drawn, chooser, "short", constitution, 0.5), chooser


def test_the_mean_of_two_comparisons_each_in_both_orders_by_hand():
    result, chooser = judged(["A", "B", "C"])
    assert result.totals == pytest.approx([(0.8 + 0.7) / 2, (0.2 + 0.6) / 2, (0.4 + 0.3) / 2])
    assert result.metrics == pytest.approx(
        {
            "judge/gap": 0.2,
            "judge/identical": 0.0,
            "judge/too_long": 0.0,
            "judge/no_answer": 0.0,
            "judge/read_tokens": 20.0,
        }
    )
    assert len(chooser.messages) == 6


def test_two_completions_are_compared_once():
    result, chooser = judged(["A", "B"])
    assert result.totals == pytest.approx([0.8, 0.2])
    assert len(chooser.messages) == 2


def test_a_judge_that_looks_at_the_position_alone_tells_nothing_apart():
    result, _ = judged(["A", "B", "C"], lambda _first, _second: 0.95)
    assert result.totals == pytest.approx([0.5] * 3)
    assert result.metrics["judge/gap"] == pytest.approx(0.9)


@pytest.mark.parametrize("order", [(1, 2, 0), (2, 0, 1), (2, 1, 0)])
def test_of_three_every_order_gives_each_the_same(order):
    expected, _ = judged(["A", "B", "C"])
    actual, _ = judged(["ABC"[i] for i in order])
    assert actual.totals == pytest.approx([expected.totals[i] for i in order])
    assert actual.metrics == pytest.approx(expected.metrics)


def test_a_group_is_judged_as_it_is_alone():
    alone, _ = judged(["A", "B"])
    both, _ = judged(["C", "B", "A", "B"], group_size=2)
    assert both.totals[2:] == alone.totals


def test_equal_texts_are_a_draw_unasked():
    result, chooser = judged(["A", "A", "B"])
    # A A: a draw; A B and B A are the same pair, and read once.
    assert result.totals == pytest.approx([(0.5 + 0.8) / 2, (0.5 + 0.8) / 2, 0.2])
    assert result.metrics["judge/identical"] == pytest.approx((0.5 + 0.5 + 0.0) / 3)
    assert len(chooser.messages) == 2
    same, silent = judged(["A"] * 9)
    assert same.totals == [0.5] * 9
    assert same.metrics["judge/read_tokens"] == 0.0
    assert silent.messages == []


def test_what_the_judge_cannot_read_is_a_draw_and_counted():
    result, _ = judged(["A", "B", "C"], lambda a, b: None if (a, b) == ("B", "A") else table(a, b))
    assert result.totals == pytest.approx([(0.5 + 0.7) / 2, (0.5 + 0.6) / 2, 0.35])
    assert result.metrics["judge/too_long"] == pytest.approx((0.5 + 0.5 + 0.0) / 3)
    assert result.metrics["judge/read_tokens"] == pytest.approx(50 / 3)


def test_a_choice_of_neither_option_is_a_draw_and_counted():
    result, _ = judged(["A", "B"], mass=0.4)
    assert result.totals == [0.5, 0.5]
    assert result.metrics["judge/no_answer"] == 1.0


@pytest.mark.parametrize(("rule", "num_long"), [(lambda _a, _b: None, 8), (lambda _a, _b: 0.9, 0)])
def test_many_comparisons_without_a_verdict_stop_the_run(rule, num_long):
    texts = [str(i) for i in range(MIN_COMPARISONS)]
    with pytest.raises(ValueError, match=f"8 comparisons: {num_long} are.*learned to judge"):
        judged(texts, rule, mass=0.1)


def test_a_prompt_has_one_principle_for_all_its_completions():
    _, chooser = judged(["A", "B", "C"])
    assert len({message.splitlines()[0] for message in chooser.messages}) == 1
    assert chooser.messages[0].startswith("Judge ")
    _, plain = judged(["A", "B"], constitution="none")
    assert plain.messages[0].startswith("Judge: ")


def test_the_function_is_given_prompt_and_text():
    result = model_components.own_function(
        Answers(["a", "bc"]), lambda prompt, text: len(text) + float(prompt.answer)
    )
    assert result.totals == [8.0, 9.0]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: model_components.model_score(None), "name another reward"),
        (lambda: model_components.step_scores(None, "sum", 0.0), "name another reward"),
        (lambda: process("sum", model=CompletionRewards(totals=[1.0, 2.0])), "scores steps"),
        (lambda: model_components.win_rate(Answers(["A", "B"]), None, "short", "none", 0.5),
         "name a policy as the row"),
        (lambda: judged(["A", "B", "A"], group_size=2), "found 2 alone: set group_size"),
        (lambda: model_components.own_function(Answers(["a"]), None), "name its file"),
        (lambda: model_components.own_function(
            Answers(["a", "bc"]), lambda _, text: 1 / (len(text) - 2)),
         r"ZeroDivisionError: .*completion 1, .*'p0': 'bc'"),
    ],
)  # fmt: skip
def test_a_reward_without_its_model_or_group_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
