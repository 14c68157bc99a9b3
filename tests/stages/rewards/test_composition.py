"""What completions are paid: every kind of component by hand, and how components are composed.

A new kind of component is a row of COMPONENTS; `test_every_kind_of_component_has_a_row` compares
the table with `components.FUNCTIONS`.
"""

from dataclasses import replace
from typing import Any

import presets
import pytest
import torch
from answers import NOTHING, Answers
from judged_rows import RuleChooser
from pydantic import ValidationError

from stages.algorithms.group_advantages import normalised_sum
from stages.loops import rollout_rewards
from stages.rewards import components, model_components
from stages.rewards.completion_rewards import (
    MAX_SHOWN,
    CompletionRewards,
    describe_completion,
    join_rewards,
    score_each,
)
from stages.rewards.composition import Cap, Component, Composition, compose_rewards
from stages.rewards.text_components import script_share
from stages.runtime.process import Stopped

SHIPPED = {name: preset for name, preset in presets.CONTENT.items() if "components" in preset}
JUDGE = {"kind": "judge", "style": "short", "constitution": "none", "min_option_mass": 0.5}
PROCESS = {"kind": "process", "credit": "sum", "zero": 0.5}


def part(value: Any = "answer", weight: float = 1.0, cap: Any = None, normalise: Any = "none"):
    scaled = normalise if normalise == "none" else {"kind": normalise, "ddof": 1, "eps": 1e-4}
    return {"value": value, "weight": weight, "cap": cap, "normalise": scaled}


def composed(combine: Any = "sum", **parts: Any) -> Composition:
    combined = combine if combine == "sum" else {"kind": combine, "ddof": 1, "eps": 1e-4}
    return Composition.model_validate({"components": parts, "combine": combined})


def pay(config: Any, completions: Answers, **available: Any) -> CompletionRewards:
    """The rewards by a composition, or by an entry of presets.yaml."""
    config = config if isinstance(config, Composition) else Composition.model_validate(config)
    return compose_rewards(config, completions, replace(NOTHING, **available))


def scored(*totals: float, **changes: Any):
    return lambda: CompletionRewards(totals=list(totals), **changes)


ENDS = torch.tensor([[True, False, True], [False, True, False]])
STEPS = torch.tensor([[0.9, 0.0, 0.2], [0.0, 0.6, 0.0]])
SCORER = scored(0.0, 0.0, step_rewards=STEPS, step_ends=ENDS, metrics={"process/steps": 1.5})

# --- each kind of component

TAGGED = "<think>3 + 4 = 7</think>\n<answer>7</answer>"
FOUR = Answers(["3 + 4 = 7\n#### 7", "#### 8", "#### 8", "no idea"], ["7", "8"], group_size=2)
COMPONENTS: list[tuple[Any, Answers, list[float], dict[str, Any]]] = [
    # value, completions, what each is paid, what is available
    ("answer", FOUR, [1, 0, 1, 0], {}),
    ("final_line", FOUR, [1, 0, 0, 0], {}),
    ("final_line", Answers(["3 + 4 = 8\n#### 8", "3\n#### 7\n", "7", ""]), [1, 1, 0, 0], {}),
    ("boxed", Answers([r"so \boxed{8}", "#### 7", r"\boxed{7} \boxed{8}"]), [1, 0, 0], {}),
    ({"kind": "tags", "credit": "whole"}, Answers([TAGGED, "<answer>7</answer>"]), [1, 0], {}),
    ({"kind": "tags", "credit": "per_tag"}, Answers([TAGGED, "<answer>7</answer>"]), [4, 2], {}),
    ({"kind": "length_penalty", "per": 4}, Answers(["", "a", "abcdefgh"]), [0, -0.25, -2], {}),
    ({"kind": "length_target", "target": 4}, Answers(["", "ab", "abcd", "abcdef"]),
     [-1, -0.5, 0, -0.5], {}),
    # bigrams 12 23 31 12 23: two of five come again; 55 four times: three of four
    ({"kind": "ngram_repetition", "n": 2},
     Answers(["a", "b", "c", "d"], tokens=[[1, 2, 3, 4], [1, 2, 3, 1, 2, 3], [5] * 5, [1]]),
     [0, -0.4, -0.75, 0], {}),
    # over the last four tokens before the limit of eight
    ({"kind": "overlong", "buffer": 4}, Answers(["abcd", "abcde", "abcdefgh"]), [0, -0.25, -1],
     {"max_new_tokens": 8}),
    ({"kind": "language", "scripts": ["latin"]}, Answers(["ab да", "wörld", "3 + 4"]),
     [0.5, 1, 1], {}),
    ("scorer", Answers(["a", "b"]), [0.25, -3], {"scorer": scored(0.25, -3.0)}),
    ("own", Answers(["a", "bc"]), [8, 9],
     {"function": lambda prompt, text: len(text) + float(prompt.answer)}),
    # Steps are paid where they end: .9 - .5 and .2 - .5; .6 - .5. The worst alone: .2 - .5.
    (PROCESS, Answers(["a", "b"]), [0.1, 0.1], {"scorer": SCORER}),
    (PROCESS | {"credit": "min"}, Answers(["a", "b"]), [-0.3, 0.1], {"scorer": SCORER}),
    # A wins by .9 read first and by 1 - .3 read second: .8.
    (JUDGE, Answers(["A", "B"]), [0.8, 0.2],
     {"judge": RuleChooser(lambda a, b: {"AB": 0.9, "BA": 0.3}[a + b])}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "completions", "expected", "available"),
    COMPONENTS,
    ids=[str(row[0] if isinstance(row[0], str) else row[0]["kind"]) for row in COMPONENTS],
)
def test_a_component_is_worth_what_is_worked_by_hand(value, completions, expected, available):
    result = pay(composed(mine=part(value, weight=2.0)), completions, **available)
    assert result.rewards().tolist() == pytest.approx([2 * number for number in expected])
    assert result.parts == {"mine": pytest.approx(expected)}  # before the weight


def test_every_kind_of_component_has_a_row():
    kinds = {row[0] if isinstance(row[0], str) else row[0]["kind"] for row in COMPONENTS}
    assert kinds == set(components.FUNCTIONS)


@pytest.mark.parametrize(
    ("text", "scripts", "share"),
    [
        ("Hello, wörld", ["latin"], 1.0), ("ab да", ["latin", "cyrillic"], 1.0),
        ("答え a", ["cjk", "hiragana"], 2 / 3), ("コーヒー 人々", ["katakana", "cjk"], 1.0),
        ("らーめん", ["hiragana"], 1.0), ("コーヒー 人々", ["latin"], 0.0), ("", ["latin"], 1.0),
        # look-alikes: a full-width a, a bold a, a Cyrillic a
        ("\uff41\U0001d41a\u0430a", ["latin"], 0.25),
    ],
)  # fmt: skip
def test_the_share_of_letters_of_a_script(text, scripts, share):
    assert script_share(text, scripts) == pytest.approx(share)


# --- a judge within a group

VERDICTS = {
    ("A", "B"): 0.9, ("B", "A"): 0.3,  # P(A beats B) = 0.8
    ("B", "C"): 0.7, ("C", "B"): 0.5,  # P(B beats C) = 0.6
    ("C", "A"): 0.2, ("A", "C"): 0.6,  # P(C beats A) = 0.3
}  # fmt: skip


def win(texts, rule=None, mass=0.9, constitution="correct", **answers):
    chooser = RuleChooser(rule or (lambda a, b: VERDICTS[a, b]), mass)
    completions = Answers(texts, **{"golds": ["7"] * 4} | answers)
    return model_components.win_rate(completions, chooser, "short", constitution, 0.5), chooser


@pytest.mark.parametrize(
    ("texts", "rule", "mass", "totals", "metrics", "num_messages"),
    [
        ("ABC", None, 0.9, [0.75, 0.4, 0.35], {"gap": 0.2, "read_tokens": 20}, 6),
        # position alone tells nothing apart
        ("ABC", lambda a, b: 0.95, 0.9, [0.5] * 3, {"gap": 0.9, "read_tokens": 20}, 6),
        # A A is a draw unasked; A B and B A are the same pair, and read once
        ("AAB", None, 0.9, [0.65, 0.65, 0.2],
         {"gap": 0.2 * (0.5 + 0.5 + 1) / 3, "identical": 1 / 3, "read_tokens": 20 / 3}, 2),
        ("AAAAAAAAA", None, 0.9, [0.5] * 9, {"identical": 1}, 0),
        # what the judge cannot read is a draw: B A
        ("ABC", lambda a, b: None if a + b == "BA" else VERDICTS[a, b], 0.9, [0.6, 0.55, 0.35],
         {"gap": 0.2 * (0.5 + 0.5 + 1) / 3, "too_long": 1 / 3, "read_tokens": 50 / 3}, 6),
        ("AB", None, 0.4, [0.5, 0.5], {"no_answer": 1, "read_tokens": 10}, 2),
    ],
    ids=["ring", "position", "equal texts", "all equal", "too long", "no answer"],
)  # fmt: skip
def test_a_completion_is_paid_its_mean_wins_over_its_neighbours(
    texts, rule, mass, totals, metrics, num_messages
):
    result, chooser = win(texts, rule, mass)
    assert result.totals == pytest.approx(totals)
    zero = dict.fromkeys(("gap", "identical", "too_long", "no_answer", "read_tokens"), 0.0)
    expected = {f"judge/{name}": value for name, value in (zero | metrics).items()}
    assert result.metrics == pytest.approx(expected)
    assert len(chooser.messages) == num_messages


def test_one_order_without_the_options_is_a_comparison_without_a_verdict():
    chooser = RuleChooser(lambda a, b: 0.9)
    read = chooser.one

    def one(message):
        return replace(read(message), mass=0.9 if "1: A" in message else 0.4)

    chooser.one = one
    result = model_components.win_rate(Answers(["A", "B"]), chooser, "short", "none", 0.5)
    assert (result.totals, result.metrics["judge/no_answer"]) == ([0.5, 0.5], 1.0)


def test_wins_depend_on_neither_the_order_nor_other_groups():
    expected, _ = win("ABC")
    for order in ("BCA", "CAB", "CBA"):
        result, _ = win(order)
        by_text = dict(zip("ABC", expected.totals, strict=True))
        assert result.totals == pytest.approx([by_text[text] for text in order])
    assert win("CBAB", group_size=2)[0].totals[2:] == win("AB")[0].totals


def test_a_prompt_has_one_principle_for_all_its_completions():
    _, chooser = win("ABC")
    assert len({message.splitlines()[0] for message in chooser.messages}) == 1
    assert not chooser.messages[0].startswith("Judge:")
    assert win("AB", constitution="none")[1].messages[0].startswith("Judge:")


@pytest.mark.parametrize(("rule", "num_long"), [(lambda a, b: None, 8), (lambda a, b: 0.9, 0)])
def test_many_comparisons_without_a_verdict_stop_the_run(rule, num_long):
    texts = [str(i) for i in range(model_components.MIN_COMPARISONS)]
    with pytest.raises(ValueError, match=f"8 comparisons: {num_long} "):
        win(texts, rule, mass=0.1)


# --- cap, scale, weight, sum


def test_the_shipped_rule_is_1_for_the_answer_and_a_fifth_for_the_format():
    """Right and in the format; right; in the format; neither. In float32, as loops add them."""
    texts = ["3 + 4 = 7\n#### 7", "#### 7", "3 + 4 = 8\n#### 8", "no idea"]
    result = pay(SHIPPED["rule"], Answers(texts))
    whole, fifth = torch.tensor(1.0), torch.tensor(0.2)
    assert result.totals == [float(whole + fifth), 1.0, float(fifth), 0.0]
    assert result.statistics() == {"reward/answer": 0.5, "reward/final_line": 0.5}
    box, tags = r"so \boxed{7}", "<think>3 + 4</think><answer>7</answer>"
    of_r1 = Answers([box, "#### 7", tags, r"\boxed{8}", "<answer>7</answer>"])
    assert pay(SHIPPED["answer_boxed"], of_r1).totals == [1.5, 1.0, 1.0, 0.5, 1.0]
    assert pay(SHIPPED["answer_tags"], of_r1).totals == pytest.approx([1, 1, 1.4, 0, 1.2])


@pytest.mark.parametrize("name", SHIPPED)
def test_every_composition_that_is_shipped_can_be_read(name):
    Composition.model_validate(SHIPPED[name])


def test_values_are_capped_then_scaled_then_weighted():
    """9, -9, 1, 3 capped at 5: z-scores of 5, -5 and of 1, 3 in their groups; then a third."""
    capped = part("scorer", 0.3, {"low": -5.0, "high": 5.0}, "group")
    four = Answers(list("abcd"), ["7", "7"], group_size=2)
    result = pay(composed(score=capped), four, scorer=scored(9.0, -9.0, 1.0, 3.0))
    z = 0.5**0.5  # of two numbers with ddof 1
    assert result.totals == pytest.approx([0.3 * z, -0.3 * z, -0.3 * z, 0.3 * z], rel=1e-3)
    assert result.parts["score"] == [9.0, -9.0, 1.0, 3.0]


@pytest.mark.parametrize(
    ("normalise", "expected"),
    [
        ({"kind": "none"}, [1.0, 3.0, 5.0, 5.0]),
        # Mean 3.5, squares 6.25 + 0.25 + 2.25 + 2.25 = 11, over 3: standard deviation 1.9149.
        ({"kind": "batch", "ddof": 1, "eps": 1e-9}, [-1.3056, -0.2611, 0.7833, 0.7833]),
        # 1 and 3: mean 2, standard deviation 1 with n. Equal values have no spread: 0.
        ({"kind": "group", "ddof": 0, "eps": 1e-9}, [-1.0, 1.0, 0.0, 0.0]),
        ({"kind": "group", "ddof": 0, "eps": 1.0}, [-0.5, 0.5, 0.0, 0.0]),
    ],
)
def test_a_scaled_component_by_hand(normalise, expected):
    component = Component(value="answer", weight=1.0, cap=None, normalise=normalise)
    values = CompletionRewards(totals=[1.0, 3.0, 5.0, 5.0])
    result = component.paid_at_end(values, torch.tensor([0, 0, 1, 1])).tolist()
    assert result == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(-1.0, 1.0, [-1.0, 0.5, 1.0]), (None, 1.0, [-3.0, 0.5, 1.0]), (-1.0, None, [-1.0, 0.5, 3.0])],
)
def test_a_cap_bounds_either_side(low, high, expected):
    component = Component.model_validate(part(cap={"low": low, "high": high}))
    assert component.capped(torch.tensor([-3.0, 0.5, 3.0])).tolist() == expected


@pytest.mark.parametrize(("low", "high"), [(None, None), (1.0, 1.0), (2.0, 1.0)])
def test_a_cap_that_bounds_nothing_or_all_is_refused(low, high):
    with pytest.raises(ValidationError):
        Cap(low=low, high=high)


def test_gdpo_is_the_normalised_sum_of_the_parts():
    drawn = Answers(["3 + 4 = 7\n#### 7", "#### 7", "3 + 4 = 8\n#### 8", "no"], ["7"] * 2,
                    group_size=2)  # fmt: skip
    result = pay(SHIPPED["rule_gdpo"], drawn)
    expected = normalised_sum(
        torch.tensor([[1.0, 1, 0, 0], [1.0, 0, 1, 0]]), torch.tensor([1.0, 0.2]),
        torch.tensor([0, 0, 1, 1]), counted=torch.ones(4, dtype=torch.bool), ddof=1, eps=1e-4,
    )  # fmt: skip
    assert result.totals == expected.tolist()
    assert result.parts["answer"] == [1, 1, 0, 0]


def test_the_order_of_components_in_the_file_changes_no_bit():
    parts = {name: part("own", w) for name, w in {"a": 0.1, "b": 0.2, "c": 0.3, "d": 1e6}.items()}
    orders = parts.items(), reversed(parts.items())
    one = Answers(["a"])
    first, second = (pay(composed(**dict(order)), one, function=lambda *_: 0.7) for order in orders)
    assert first.totals == second.totals


# --- rewards of steps


def test_step_rewards_are_capped_then_weighted_and_paid_besides_the_totals():
    steps = torch.tensor([[3.0, 0.0, 0.5], [0.0, -3.0, 0.0]])
    model = scored(1.0, 2.0, step_rewards=steps, step_ends=steps != 0, metrics={"m": 1.0})
    capped = {"low": -1.0, "high": 1.0}
    result = pay(composed(p=part("scorer", 2.0, capped)), Answers(["a", "b"]), scorer=model)
    assert result.totals == [2.0, 4.0]  # the cap is the steps'
    assert result.step_rewards.tolist() == [[2.0, 0.0, 1.0], [0.0, -2.0, 0.0]]
    assert (result.parts, result.metrics) == ({"p": [4.5, -1.0]}, {"m": 1.0})
    scaled = composed(p=part("scorer", 2.0, capped, "group"))
    with pytest.raises(ValueError, match="'p' of the reward"):
        pay(scaled, Answers(["a", "b"]), scorer=model)


@pytest.mark.parametrize(
    ("value", "cap", "rewards", "ends"),
    [
        (PROCESS, None, [[0.4, 0.0, -0.3], [0.0, 0.1, 0.0]], ENDS),
        (PROCESS | {"credit": "min"}, None, [[0.0, 0.0, -0.3], [0.0, 0.1, 0.0]],
         torch.tensor([[False, False, True], [False, True, False]])),
        # a step that is worth 0 is a step
        (PROCESS | {"zero": 0.6}, None, [[0.3, 0.0, -0.4], [0.0, 0.0, 0.0]], ENDS),
        # a cap above 0 pays nothing where no step ends
        (PROCESS | {"zero": 0.0}, {"low": 0.5, "high": None}, [[0.9, 0, 0.5], [0, 0.6, 0]], ENDS),
    ],
    ids=["sum", "min", "zero", "cap"],
)  # fmt: skip
def test_steps_are_paid_where_they_end(value, cap, rewards, ends):
    config = composed(p=part(value, 2.0, cap))
    result = pay(config, Answers(["a", "b"]), scorer=SCORER)
    torch.testing.assert_close(result.step_rewards, 2 * torch.tensor(rewards))
    assert torch.equal(result.step_ends, ends)
    assert (result.totals, result.metrics) == ([0.0, 0.0], {"process/steps": 1.5})


def test_the_step_rewards_of_several_components_are_added():
    both = composed(a=part(PROCESS), b=part(PROCESS | {"credit": "min"}, 3.0), c=part("answer"))
    result = pay(both, Answers(["#### 7", "b"]), scorer=SCORER)
    torch.testing.assert_close(
        result.step_rewards, torch.tensor([[0.4, 0.0, -1.2], [0.0, 0.4, 0.0]])
    )
    assert torch.equal(result.step_ends, ENDS)
    assert result.totals == [1.0, 0.0]


# --- batches of rewards


def test_joined_batches_keep_their_order_their_steps_and_their_means():
    first = scored(1.0, 2.0, parts={"a": [1.0, 2.0]}, step_rewards=STEPS, step_ends=ENDS,
                   metrics={"m": 1.0})()  # fmt: skip
    second = scored(3.0, parts={"a": [3.0]}, step_rewards=torch.tensor([[4.0]]),
                    step_ends=torch.tensor([[True]]), metrics={"m": 4.0})()  # fmt: skip
    result = join_rewards([first, second])
    assert (result.totals, result.parts) == ([1.0, 2.0, 3.0], {"a": [1.0, 2.0, 3.0]})
    assert result.step_rewards.tolist() == [*STEPS.tolist(), [4.0, 0.0, 0.0]]
    assert result.step_ends.tolist() == [*ENDS.tolist(), [True, False, False]]
    assert result.metrics == {"m": pytest.approx(2.0)}  # 1, 1 and 4
    assert result.statistics() == {"reward/a": 2.0, "m": pytest.approx(2.0)}
    assert result.rewards().tolist() == pytest.approx([2.1, 2.6, 7.0])
    assert join_rewards([CompletionRewards(totals=[1.0])]).step_rewards is None
    with pytest.raises(ValueError, match="together"):
        CompletionRewards(totals=[0.0], step_rewards=torch.zeros(1, 2))


def test_each_completion_is_checked_against_the_gold_answer_of_its_own_prompt():
    for golds, expected in ((["7", "8"], [True, False, True, False]), (["8", "7"], [False, True])):
        drawn = Answers(FOUR.texts[: len(expected)], golds, group_size=2)
        assert rollout_rewards.check_answers(drawn) == expected


# --- what stops a run


NAN_STEPS = scored(0.0, 0.0, step_rewards=STEPS / 0.0, step_ends=ENDS)


@pytest.mark.parametrize(
    ("value", "texts", "available", "named"),
    [
        *[("own", ["a", "b"], {"function": lambda _, text, bad=bad: bad if text == "b" else 0.0},
           r"'mine' .*completion 1, of prompt 'p0': 'b'")
          for bad in (float("nan"), float("inf"), -float("inf"), 1e39)],
        ("own", ["a"], {"function": lambda *_: {}["x"]}, r"'mine' .*KeyError.*completion 0"),
        ("own", ["a"], {"function": lambda *_: None}, r"found None, .*of prompt 'p0': 'a'"),
        # a reward that runs code of a completion
        ("own", ["exit(3)"], {"function": lambda _, text: exec(text) or 1.0}, r"exit\(3\).*'p0'"),
        ("scorer", ["a", "b"], {"scorer": NAN_STEPS}, "'mine' .*completion 0"),
        ("scorer", ["a", "b"], {"scorer": scored(1.0)}, "expected 2 .*found 1"),
        ("scorer", ["a"], {}, "on: rewards"), (PROCESS, ["a"], {}, "on: rewards"),
        (PROCESS, ["a"], {"scorer": scored(1.0)}, "process"), ("own", ["a"], {}, "on: own"),
        (JUDGE, ["a", "b"], {}, "`from`"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("cap", [None, {"low": 0.0, "high": 1.0}], ids=["free", "capped"])
def test_a_component_that_gives_no_numbers_stops_the_run_and_is_named(
    value, texts, available, named, cap
):
    with pytest.raises(ValueError, match=named):
        pay(composed(mine=part(value, cap=cap)), Answers(texts), **available)


def test_a_judge_refuses_a_completion_that_is_alone():
    with pytest.raises(ValueError, match="group_size"):
        win("ABA", group_size=2)


def test_a_request_to_stop_goes_through_a_reward():
    def reward(*_: object) -> float:
        raise Stopped

    with pytest.raises(Stopped):
        score_each(Answers(["a"]), reward)


def test_a_long_completion_is_shown_cut():
    shown = describe_completion(Answers(["a" * (MAX_SHOWN + 5)]), 0)
    assert f"'{'a' * MAX_SHOWN}' and 5 " in shown


# --- which compositions there are


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    *(("sum", {name: part()}, f"reward/{name}") for name in ("mean", "std", "accuracy")),
    ("sum", {}, "components"),
    ("sum", {"A b": part()}, "A b"),
    ("normalise", {"a": part(normalise="group"), "b": part()}, "a needs"),
    ("sum", {"p": part(PROCESS, normalise="batch")}, "component p"),
    ("normalise", {"p": part(PROCESS), "a": part()}, "component p"),
    ("sum", {"a": part(JUDGE), "b": part("scorer")}, "scorer"),
    ("sum", {"a": part(JUDGE), "b": part(PROCESS)}, "process"),
    ("sum", {"a": part("overlong")}, "buffer"),
]


@pytest.mark.parametrize(("combine", "parts", "named"), REFUSED, ids=[row[2] for row in REFUSED])
def test_components_that_do_not_go_together_are_refused(combine, parts, named):
    with pytest.raises(ValidationError, match=named):
        composed(combine, **parts)


FACTS = [
    # composition; needs a model, a judge; may be negative; compares
    (composed(a=part()), False, False, False, set()),
    (composed(a=part(), b=part("boxed", -0.1)), False, False, True, set()),
    (composed(a=part({"kind": "length_penalty", "per": 4})), False, False, True, set()),
    (composed(a=part("scorer")), True, False, True, set()),
    (composed(a=part(PROCESS)), True, False, True, set()),
    (composed(a=part(JUDGE)), True, True, False, set()),
    (composed(a=part(), b=part(normalise="batch")), False, False, True, {"batch"}),
    (composed("normalise", a=part()), False, False, True, {"batch", "group"}),
]


@pytest.mark.parametrize(("config", "model", "judge", "negative", "scopes"), FACTS)
def test_a_composition_knows_what_it_needs(config, model, judge, negative, scopes):
    facts = config.needs_model(), config.needs_judge(), config.may_be_negative()
    assert (*facts, config.compares()) == (model, judge, negative, scopes)


@pytest.mark.parametrize(
    ("config", "smallest"),
    [
        (composed(a=part()), 1), (composed(a=part(normalise="batch")), 1),
        (composed(a=part(JUDGE)), 2), (composed(a=part(normalise="group")), 2),
    ],
)  # fmt: skip
def test_what_compares_completions_needs_two_of_a_prompt(config, smallest):
    config.check_group_size(smallest, "group_size")
    if smallest == 2:
        with pytest.raises(ValueError, match="group_size is 1"):
            config.check_group_size(1, "group_size")


def test_a_buffer_is_at_most_as_long_as_completions():
    buffered = composed(a=part({"kind": "overlong", "buffer": 9}))
    buffered.check_lengths(9)
    with pytest.raises(ValueError, match=r"a.value.buffer 9 .* 8"):
        buffered.check_lengths(8)
