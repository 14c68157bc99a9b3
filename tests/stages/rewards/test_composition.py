"""What completions are paid: every kind of component by hand, and how components are composed.

The tables are in test_composition.yaml. A new kind of component is a row of `components`;
`test_every_kind_of_component_has_a_row` compares them with `components.Value`.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import presets
import pytest
import torch
from answers import NOTHING, Answers
from judged_rows import RuleChooser
from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML

from stages.loops import rollout_rewards
from stages.rewards import components, model_components
from stages.rewards.completion_rewards import (
    CompletionRewards,
    join_rewards,
    score_each,
)
from stages.rewards.composition import Component, Composition, compose_rewards
from stages.runtime.process import Stopped

TABLES = YAML(typ="safe").load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
SHIPPED = {name: preset for name, preset in presets.CONTENT.items() if "components" in preset}
JUDGE = {"kind": "judge", "style": "short", "constitution": "none", "min_option_mass": 0.5}
PROCESS = {"kind": "process", "credit": "sum", "zero": 0.5}
ENDS = torch.tensor([[True, False, True], [False, True, False]])
STEPS = torch.tensor([[0.9, 0.0, 0.2], [0.0, 0.6, 0.0]])
VERDICTS = {"AB": 0.9, "BA": 0.3, "BC": 0.7, "CB": 0.5, "CA": 0.2, "AC": 0.6}
"""P(the first is better): A beats B by (.9 + 1 - .3) / 2 = .8, B beats C by .6, C beats A by .3."""


def rows(name: str) -> list[Any]:
    return [pytest.param(row, id=str(row)[:70]) for row in TABLES[name]]


def scored(*totals: float, **changes: Any):
    return lambda: CompletionRewards(totals=list(totals), **changes)


SCORER = scored(0.0, 0.0, step_rewards=STEPS, step_ends=ENDS, metrics={"process/steps": 1.5})
AVAILABLE = {
    "scores": {"scorer": scored(0.25, -3.0)}, "steps": {"scorer": SCORER},
    "own": {"function": lambda prompt, text: len(text) + float(prompt.answer)},
    "judge": {"judge": RuleChooser(lambda a, b: VERDICTS[a + b])},
}  # fmt: skip


def part(value: Any = "answer", weight: float = 1.0, cap: Any = None, normalise: Any = "none"):
    if normalise in ("batch", "group"):
        normalise = {"kind": normalise, "ddof": 1, "eps": 1e-4}
    return {"value": value, "weight": weight, "cap": cap, "normalise": normalise}


def composed(combine: str = "sum", **parts: Any) -> Composition:
    combined = combine if combine == "sum" else {"kind": combine, "ddof": 1, "eps": 1e-4}
    return Composition.model_validate({"components": parts, "combine": combined})


def pay(config: Any, completions: Answers, **available: Any) -> CompletionRewards:
    """The rewards by a composition, or by an entry of presets.yaml."""
    models = replace(NOTHING, **{"max_new_tokens": 8} | available)
    return compose_rewards(Composition.model_validate(config), completions, models)


# --- components


@pytest.mark.parametrize("row", [*rows("components"), *rows("shipped")])
def test_a_component_or_a_shipped_rule_is_worth_what_is_worked_by_hand(row):
    golds, weight = row.get("golds", ["7"]), row.get("weight", 2.0)
    completions = Answers(row["texts"], golds, group_size=1000 if len(golds) == 1 else 2)
    available = AVAILABLE.get(row.get("with"), {})
    config = SHIPPED[row["preset"]] if "preset" in row else composed(mine=part(row["value"], 2.0))
    result = pay(config, completions, **available)
    paid, within = [weight * number for number in row["paid"]], row.get("within", 1e-6)
    assert result.rewards().tolist() == pytest.approx(paid, rel=0, abs=within)
    if "preset" not in row:
        assert result.parts == {"mine": pytest.approx(row["paid"])}  # before the weight


def test_every_kind_of_component_has_a_row():
    values = [row["value"] for row in TABLES["components"]]
    kinds = {value if isinstance(value, str) else value["kind"] for value in values}
    schema = TypeAdapter(components.Value).json_schema()["$defs"].values()
    properties = [part["properties"]["kind"] for part in schema]
    assert kinds == {kind for each in properties for kind in each.get("enum") or [each["const"]]}


def win(texts, constitution="correct", row=None, **answers):
    """A judge's rewards; `row`: how it reads."""
    row = row or {}

    def read(a: str, b: str) -> float | None:
        return None if a + b == row.get("unread") else row.get("always", VERDICTS.get(a + b, 0.9))

    chooser = RuleChooser(read, row.get("mass", 0.9))
    if "mass_of_first" in row:  # in one order alone
        once = chooser.one
        chooser.one = lambda message: replace(
            once(message), mass=row["mass_of_first"] if "1: A" in message else 0.9
        )
    completions = Answers(texts, **{"golds": ["7"] * 4} | answers)
    component = model_components.JudgeWins(
        kind="judge", style="short", constitution=constitution, min_option_mass=0.5
    )
    return component(completions, components.RewardModels(judge=chooser, max_new_tokens=1)), chooser


@pytest.mark.parametrize("row", rows("judge"))
def test_a_completion_is_paid_its_mean_wins_over_its_neighbours(row):
    result, chooser = win(row["texts"], row=row)
    assert result.totals == pytest.approx(row["totals"])
    zero = dict.fromkeys(("gap", "identical", "too_long", "no_answer", "read_tokens"), 0.0)
    expected = {f"judge/{name}": value for name, value in (zero | row["metrics"]).items()}
    assert result.metrics == pytest.approx(expected, abs=1e-6)
    assert len(chooser.messages) == row["messages"]


def test_wins_depend_on_neither_the_order_nor_other_groups():
    expected = dict(zip("ABC", win("ABC")[0].totals, strict=True))
    for order in ("BCA", "CAB", "CBA"):
        assert win(order)[0].totals == pytest.approx([expected[text] for text in order])
    assert win("CBAB", group_size=2)[0].totals[2:] == win("AB")[0].totals
    with pytest.raises(ValueError, match="alone"):
        win("ABA", group_size=2)
    (first_line,) = {message.splitlines()[0] for message in win("ABC")[1].messages}
    assert not first_line.startswith("Judge:")  # one principle for all completions of a prompt


@pytest.mark.parametrize(("always", "num_long"), [(None, 8), (0.9, 0)])
def test_many_comparisons_without_a_verdict_stop_the_run(always, num_long):
    texts = [str(i) for i in range(model_components.MIN_COMPARISONS)]
    with pytest.raises(ValueError, match=f"8 comparisons: {num_long} "):
        win(texts, row={"always": always, "mass": 0.1})


# --- cap, scale, weight, sum


@pytest.mark.parametrize("row", rows("paid"))
def test_a_value_is_capped_then_scaled_or_the_cap_is_refused(row):
    """Values 1, 3, 5, 5 of two groups of two."""
    changes = {name: row[name] for name in ("cap", "normalise") if name in row}
    if row["paid"] is None:
        with pytest.raises(ValidationError):
            Component.model_validate(part(**changes))
        return
    values = CompletionRewards(totals=[1.0, 3.0, 5.0, 5.0])
    component = Component.model_validate(part(**changes))
    result = component.paid_at_end(values, torch.tensor([0, 0, 1, 1])).tolist()
    assert result == pytest.approx(row["paid"], abs=1e-4)


def test_the_order_of_components_in_the_file_changes_no_bit():
    weights = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 1e6}
    parts = {name: part("own", weight) for name, weight in weights.items()}
    first, second = (
        pay(composed(**dict(order)), Answers(["a"]), function=lambda *_: 0.7)
        for order in (parts.items(), reversed(parts.items()))
    )
    assert first.totals == second.totals


# --- rewards of steps


@pytest.mark.parametrize("row", rows("steps"))
def test_steps_are_paid_where_they_end(row):
    config = composed(p=part(row["value"], 2.0, row.get("cap")), a=part())
    result = pay(config, Answers(["#### 7", "b"]), scorer=SCORER)
    torch.testing.assert_close(
        result.step_rewards, 2 * torch.tensor(row["paid"], dtype=STEPS.dtype)
    )
    least = torch.tensor([[False, False, True], [False, True, False]])
    assert torch.equal(result.step_ends, least if row["value"]["credit"] == "min" else ENDS)
    assert (result.totals, result.metrics) == ([1.0, 0.0], {"process/steps": 1.5})


def test_step_rewards_of_a_scorer_are_paid_besides_its_totals_and_added_to_others():
    steps = torch.tensor([[3.0, 0.0, 0.5], [0.0, -3.0, 0.0]])
    model = scored(1.0, 2.0, step_rewards=steps, step_ends=steps != 0)
    capped, two = {"low": -1.0, "high": 1.0}, Answers(["a", "b"])
    result = pay(composed(p=part("scorer", 2.0, capped)), two, scorer=model)
    assert result.totals == [2.0, 4.0]  # the cap is the steps'
    assert result.step_rewards.tolist() == [[2.0, 0.0, 1.0], [0.0, -2.0, 0.0]]
    assert result.parts == {"p": [4.5, -1.0]}
    with pytest.raises(ValueError, match="'p' of the reward"):
        pay(composed(p=part("scorer", 2.0, capped, "group")), two, scorer=model)
    both = composed(a=part(PROCESS), b=part(PROCESS | {"credit": "min"}, 3.0))
    expected = torch.tensor([[0.4, 0.0, -1.2], [0.0, 0.4, 0.0]])
    result = pay(both, two, scorer=SCORER)
    torch.testing.assert_close(result.step_rewards, expected)
    assert torch.equal(result.step_ends, ENDS)


def test_joined_batches_keep_their_order_their_steps_and_their_means():
    grids = {"step_rewards": STEPS, "step_ends": ENDS}
    first = scored(1.0, 2.0, parts={"a": [1.0, 2.0]}, metrics={"m": 1.0}, **grids)()
    grids = {"step_rewards": torch.tensor([[4.0]]), "step_ends": torch.tensor([[True]])}
    second = scored(3.0, parts={"a": [3.0]}, metrics={"m": 4.0}, **grids)()
    result = join_rewards([first, second])
    assert (result.totals, result.parts) == ([1.0, 2.0, 3.0], {"a": [1.0, 2.0, 3.0]})
    assert result.step_rewards.tolist() == [*STEPS.tolist(), [4.0, 0.0, 0.0]]
    assert result.step_ends.tolist() == [*ENDS.tolist(), [True, False, False]]
    assert result.statistics() == {"reward/a": 2.0, "m": pytest.approx(2.0)}  # 1, 1 and 4
    assert result.rewards().tolist() == pytest.approx([2.1, 2.6, 7.0])
    assert join_rewards([CompletionRewards(totals=[1.0])]).step_rewards is None


def test_each_completion_is_checked_against_the_gold_answer_of_its_own_prompt():
    drawn = Answers(["#### 7", "#### 8", "#### 8", "no idea"], ["7", "8"], group_size=2)
    assert rollout_rewards.check_answers(drawn) == [True, False, True, False]


# --- what stops a run


STOPS = [
    *[("own", {"function": lambda _, text, bad=bad: bad if text == "b" else 0.0},
       r"'mine' .*completion 1, of prompt 'p0': 'b'")
      for bad in (float("nan"), float("inf"), -float("inf"), 1e39)],
    ("own", {"function": lambda *_: {}["x"]}, r"'mine' .*KeyError.*completion 0"),
    ("own", {"function": lambda *_: None}, r"found None, .*of prompt 'p0': 'a'"),
    # a reward that runs code of a completion
    ("own", {"function": lambda *_: exec("exit(3)")}, r"exit\(3\).*'p0'"),
    ("scorer", {"scorer": scored(0.0, 0.0, step_rewards=STEPS / 0.0, step_ends=ENDS)},
     "'mine' .*completion 0"),
    ("scorer", {"scorer": scored(1.0)}, "expected 2 .*found 1"), ("scorer", {}, "on: rewards"),
    (PROCESS, {}, "on: rewards"), (PROCESS, {"scorer": scored(1.0, 2.0)}, "process"),
    ("own", {}, "on: own"), (JUDGE, {}, "`from`"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "available", "named"), STOPS)
@pytest.mark.parametrize("cap", [None, {"low": 0.0, "high": 1.0}], ids=["free", "capped"])
def test_a_component_that_gives_no_numbers_stops_the_run_and_is_named(value, available, named, cap):
    with pytest.raises(ValueError, match=named):
        pay(composed(mine=part(value, cap=cap)), Answers(["a", "b"]), **available)


def test_a_request_to_stop_goes_through_a_reward():
    def reward(*_: object) -> float:
        raise Stopped

    with pytest.raises(Stopped):
        score_each(Answers(["a"]), reward)


# --- which compositions there are


@pytest.mark.parametrize("row", rows("refused"))
def test_components_that_do_not_go_together_are_refused(row):
    scaled = {"normalise": row.get("normalise", "none")}
    parts = {name: part(value, **scaled) for name, value in row["parts"].items()}
    with pytest.raises(ValidationError, match=row["says"]):
        composed(row.get("combine", "sum"), **parts)


@pytest.mark.parametrize("row", rows("facts"))
def test_a_composition_knows_what_it_needs(row):
    parts = {
        f"c{number}": part(value, normalise=row.get("normalise", "none"))
        for number, value in enumerate(row["values"])
    }
    config = composed(row.get("combine", "sum"), **parts)
    assert (config.needs_model(), config.needs_judge()) == (row["model"], row["judge"])
    assert config.compares() == row["compares"]
    config.check_group_size(row["smallest"], "group_size")
    if row["smallest"] == 2:
        with pytest.raises(ValueError, match="group_size is 1"):
            config.check_group_size(1, "group_size")
    longest = row.get("longest", 1)  # of a completion
    config.check_lengths(longest)
    if longest > 1:
        with pytest.raises(ValueError, match=rf"buffer {longest} .* {longest - 1}"):
            config.check_lengths(longest - 1)
