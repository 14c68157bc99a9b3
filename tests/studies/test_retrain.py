"""Rows that are trained again: settings, what is measured of them, and how they are compared."""

from contextlib import nullcontext

import numpy as np
import pydantic
import pytest
import studied_run
from studied_run import CASES, completion, problem

from stages.config import PARAMS_PATH, PRESETS_PATH
from stages.records import lines
from stages.rewards import reward_file
from stages.rows import DATA, PROMPTS
from studies import retrain, retrain_metrics, study
from studies.retrain import Experiment, Task
from studies.retrain_metrics import RUN, SeedResult

PLAN = CASES["experiment_plan"]
PAIR = ["policies/grpo", "policies/other"]
STALE = {"k1": {"preset": {"staleness": 1}}}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    studied_run.write_yaml(PARAMS_PATH, {"seeds": [0, 1], "compute": {"rounding": "pinned"}})
    studied_run.write_yaml(PRESETS_PATH, {"sft": {}, "rule": {}, "online": {"staleness": 0}})
    return tmp_path


def task(**fields):
    return Task(experiment=Experiment(**fields), plan=PLAN, baseline="sft")


@pytest.mark.parametrize(("fields", "word"), CASES["experiments"], ids=str)
def test_rows_fit_together_and_variants_change_them(fields, word):
    refusal = nullcontext() if word is None else pytest.raises(ValueError, match=word)
    with refusal:
        retrain.check_rows("it", task(**fields))


@pytest.mark.parametrize("fields", [
    {}, {"variants": STALE, "tokens": 9}, {"variants": {RUN: {}}}, {"variants": {"../k": {}}},
], ids=str)  # fmt: skip
def test_an_experiment_has_variants_or_a_budget(fields):
    with pytest.raises(pydantic.ValidationError):
        Experiment(rows=PAIR, **fields)


def test_the_run_is_measured_beside_the_variants():
    cells = task(rows=["policies/grpo"], variants=STALE).list_cells()
    assert cells == [("policies/grpo", RUN), ("policies/grpo", "k1")]
    assert task(rows=PAIR, tokens=9).list_cells() == [
        ("policies/sft", RUN), *((row, retrain.BUDGET) for row in PAIR),
    ]  # fmt: skip


def test_tokens_of_a_row_are_those_of_its_seed():
    spent = {"generated_tokens": 3, "trained_tokens": 4}
    studied_run.write_json(DATA / "policies/grpo/training/1/metrics.json", spent)
    studied_run.write_json(DATA / "pairs/people/metrics.json", {"generated_tokens": 5})
    for name, kind in (("model", "preference"), ("rule", "rule")):
        (DATA / f"rewards/{name}").mkdir(parents=True)
        content = reward_file.model_reward_file("preference").model_copy(update={"kind": kind})
        reward_file.write_reward(DATA / f"rewards/{name}", content)
    studied_run.write_json(DATA / "rewards/model/1/metrics.json", {"trained_tokens": 6})
    rows = {"policies/grpo": (3, 4), "pairs/people": (5, 0), "rewards/model": (0, 6),
            "rewards/rule": (0, 0)}  # fmt: skip
    assert {row: retrain.count_tokens(DATA, row, 1) for row in rows} == rows


def test_an_accuracy_is_the_share_of_right_samples_or_pairs(folder):
    lines.write_lines(PROMPTS / "test.jsonl", [problem("a"), problem("b")])
    texts = {"a": ("#### 7", "#### 8"), "b": ("#### 7", "#### 7")}
    rows = [completion(name, i, t, [1]) for name in "ab" for i, t in enumerate(texts[name])]
    greedy = [completion("a", 0, "#### 8", [1]), completion("b", 0, "#### 7", [1])]
    lines.write_lines(folder / "samples/sft/0/test.jsonl", rows)
    lines.write_lines(folder / "samples/sft/0/test_greedy.jsonl", greedy)
    assert [*retrain.read_results(folder, "policies/sft", 0)] == [
        SeedResult(id="a", accuracy=0.5, greedy=0.0), SeedResult(id="b", accuracy=1.0, greedy=1.0),
    ]  # fmt: skip
    metrics = {"heldout": {"accuracy": {"value": 0.75, "low": 0.5, "high": 1.0}}}
    studied_run.write_json(folder / "rewards/model/0/metrics.json", metrics)
    assert [*retrain.read_results(folder, "rewards/model", 0)] == [
        SeedResult(id="heldout", accuracy=0.75, greedy=None)
    ]


# Comparisons


def results(table):
    """A table of shares, seed x problem; greedy is right where any sample is."""
    return [
        [SeedResult(id=f"p{place}", accuracy=float(share), greedy=float(share > 0))
         for place, share in enumerate(row)]
        for row in table
    ]  # fmt: skip


def compare(are_rivals=True, **rows):
    cells = {
        (name, RUN if name == "sft" else "budget") if are_rivals else ("row", name): results(table)
        for name, table in rows.items()
    }
    seeds = range(len(next(iter(cells.values()))))
    return retrain_metrics.compare_cells(cells, [*seeds], confidence=0.95, are_rivals=are_rivals)


def render(metrics, **values):
    values = {"name": "it", "rows": ["a"], "baseline": "sft", "tokens": None, "spent": [],
              "measures": retrain_metrics.MEASURES, **values}  # fmt: skip
    no_verdict = study.explain_no_verdict(metrics["num_seeds"])
    return study.render("retrain", **metrics, **values, no_verdict=no_verdict)


def test_seeds_with_other_problems_are_refused():
    with pytest.raises(ValueError, match="the same test problems"):
        retrain_metrics.make_table(results([[1.0, 0.5], [1.0, 0.5, 0.25]]))


NOISE = np.random.default_rng(0).integers(0, 2, (3, 40)) / 4


def test_rivals_are_ranked_the_larger_first_and_differences_are_paired():
    levels = {"sft": NOISE, "a": NOISE + 0.25, "b": NOISE + 0.5}
    metrics = compare(**levels)
    (pair,) = metrics["differences"]["pairs"]["mean"].items()
    # b is right once more of four on every problem: no spread but that of problems
    assert (pair[0], pair[1]["value"], pair[1]["significant"]) == ("b - a", 0.25, True)
    assert [*metrics["differences"]["gains"]["mean"]] == ["b - sft", "a - sft"]
    assert (metrics["num_seeds"], metrics["num_problems"]) == (3, 40)
    assert metrics["ranking"] == ["b", "a"]
    page = render(metrics)
    for word in ("Ranking: b > a", "**b beats a**", "| b | budget |", "no verdict"):
        assert (word in page) == (word != "no verdict")
    same = compare(sft=NOISE, a=NOISE + 0.25, b=NOISE + 0.25)
    assert same["differences"]["pairs"]["mean"]["a - b"]["value"] == 0.0
    assert same["ranking"] is None
    assert "Ranking" not in render(same)


def test_two_seeds_give_numbers_and_no_verdict():
    metrics = compare(sft=NOISE[:2], a=NOISE[:2] + 0.25, b=NOISE[:2] + 0.75)
    pair = metrics["differences"]["pairs"]["mean"]["b - a"]
    assert (pair["value"], pair["significant"], pair["p"], pair["p_holm"]) == (0.5, *[None] * 3)
    assert metrics["ranking"] is None
    page = render(metrics)
    assert "+50.0 [" in page
    assert "No verdict" in page
    assert [word for word in ("beats", "Ranking", "0.0001", "**") if word in page] == []


def test_variants_of_a_row_are_compared_with_the_reference():
    metrics = compare(are_rivals=False, run=NOISE + 0.5, more=NOISE + 0.75, less=NOISE)
    differences = metrics["differences"]["row"]["mean"]
    values = {name: row["value"] for name, row in differences.items()}
    assert values == {"more - run": 0.25, "less - run": -0.5}
    assert metrics["ranking"] is None
    level = metrics["accuracy"]["row"]["more"]["mean"]
    assert level["value"] == pytest.approx(NOISE.mean() + 0.75)
    assert level["high"] <= 1.0
    page = render(metrics)
    assert "**row (more) beats row (run)** by +25.0" in page
    assert "**row (less) is worse than row (run)** by -50.0" in page


def test_rewards_have_levels_of_each_seed_and_neither_bounds_nor_tests():
    cells = {
        ("rewards/a", variant): [
            [SeedResult(id="heldout", accuracy=x, greedy=None)] for x in shares
        ]
        for variant, shares in {RUN: (0.9, 0.8, 0.7), "noisy": (0.6, 0.5, 0.4)}.items()
    }
    options = {"confidence": 0.95, "are_rivals": False}
    metrics = retrain_metrics.compare_cells(cells, [0, 1, 2], **options)
    seeds = {"0": 0.9, "1": 0.8, "2": 0.7}
    level = metrics["accuracy"]["rewards/a"][RUN]["mean"]
    assert level == {"value": 0.8, "low": None, "high": None, "seeds": seeds}
    assert metrics["differences"] == {}
    page = render(metrics)
    assert "| rewards/a | noisy | 50.0 % | 60.0, 50.0, 40.0 |" in page
    assert [word for word in ("Greedy", "test problems", "[") if word in page] == []


def test_spreads_between_variants_and_seeds_by_hand():
    # of seed 0: 0.4, 0.6 (variance 0.02), of seed 1: 0.5, 0.5 (0): sqrt(0.01)
    # of the first variant: 0.4, 0.5 (0.005), of the second: 0.6, 0.5 (0.005): sqrt(0.005)
    spread = retrain_metrics.measure_spread(np.array([[0.4, 0.5], [0.6, 0.5]]))
    assert spread == pytest.approx({"between_variants": 0.1, "between_seeds": 0.005**0.5}, abs=1e-6)
    single = retrain_metrics.measure_spread(np.array([[0.4], [0.6]]))
    assert single["between_seeds"] is None
    assert single["between_variants"] == pytest.approx(0.02**0.5, abs=1e-6)
