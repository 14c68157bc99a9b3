"""Rows of stages: lines of JSON, pools with their scores, labelled steps, metrics."""

import json
from dataclasses import replace
from pathlib import Path

import judged_rows
import pytest
from judged_rows import prompt
from ruamel.yaml import YAML

from stages.records import lines, metrics, pools
from stages.records.pools import Completion, Score
from stages.records.steps import StepLabels, read_training_steps

TABLES = YAML(typ="safe").load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
ROWS = [Score(id="a", index=0, scores={"b": 0.1 + 0.2, "a": 1.0}, disagreement={},
    steps={"b": [0.5]}), Score(id="é\u2028\n漢", index=1, scores={}, disagreement={"a": -1e-300},
    steps={})]  # fmt: skip


def test_rows_are_lines_of_json_in_utf8_and_come_back_as_they_were(tmp_path):
    path = tmp_path / "deep" / "rows.jsonl"
    long = replace(judged_rows.completion("x", ids=[1, 2]), logprob_sum=-1.5, seed=2**62)
    for rows, kind in ((ROWS, Score), ([], Score), ([long], Completion)):
        assert lines.write_lines(path, rows) == len(rows)
        assert list(lines.read_lines(path, kind)) == rows
        assert path.read_bytes().count(b"\n") == len(rows)
    lines.write_lines(path, ROWS)
    raw = path.read_bytes().split(b"\n")
    assert list(json.loads(raw[0])) == ["disagreement", "id", "index", "scores", "steps"]
    assert "漢".encode() in raw[1]


@pytest.mark.parametrize("line", TABLES["lines"])
def test_a_row_of_another_kind_is_refused_with_its_line(tmp_path, line):
    path = tmp_path / "rows.jsonl"
    lines.write_lines(path, ROWS[:1])
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 2"):
        list(lines.read_lines(path, Score))


def completion(name, index):
    return judged_rows.completion("", index, name)


def join(*rows):
    return pools.join_prompts([prompt("b"), prompt("a")], [completion(*row) for row in rows])


def score(name, index, value, step=0.5):
    return Score(id=name, index=index, scores={"outcome": value}, disagreement={},
        steps={"process": [0.5, step]})  # fmt: skip


def test_completions_and_scores_come_in_the_order_of_prompts_and_indices():
    pairs = join(("b", 1), ("a", 0), ("b", 0), ("a", 1))
    order = [(p.id, [row.index for row in pool]) for p, pool in pairs]
    assert order == [("b", [0, 1]), ("a", [0, 1])]
    rows = [score("a", 1, 0.5), score("a", 0, -2.0), score("b", 0, 1.0), score("b", 1, 3.0)]
    assert pools.align_scores(pairs, rows) == [rows[2:], rows[1::-1]]


@pytest.mark.parametrize("case", TABLES["refused"], ids=lambda case: case["it"])
def test_pools_and_scores_that_do_not_fit_are_refused(case):
    with pytest.raises(ValueError, match=case["says"]):
        pools.align_scores(
            join(*case["completions"]), [score(*row) for row in case.get("scores", [])]
        )


def test_equal_completions_are_a_group_by_their_tokens():
    ids = [[5, 6], [7], [5, 6], [5], [7]]
    pool = [replace(completion("a", at), completion_ids=each) for at, each in enumerate(ids)]
    firsts, places = pools.deduplicate(pool)
    assert ([row.index for row in firsts], places) == ([0, 1, 3], [0, 1, 0, 2, 1])
    with pytest.raises(ValueError, match="no prompt"):
        pools.join_prompts([], [])


STEPS = StepLabels(
    id="a", index=0, prompt="a?", prompt_ids=[5], steps=["x"], step_ids=[[7]], labels=[1.0],
    num_completions=[4], true_labels=None, correct=None, source="math_shepherd",
)  # fmt: skip


@pytest.mark.parametrize("case", TABLES["splits"], ids=lambda case: case["it"])
def test_training_steps_are_of_other_problems_and_of_no_test_set(case, tmp_path):
    paths, rows = [], []
    for side in ("train", "heldout"):
        paths.append(tmp_path / f"{side}.jsonl")
        rows.append([replace(STEPS, **changes) for changes in case[side]])
        lines.write_lines(paths[-1], rows[-1])
    if case["says"] is None:
        assert [*read_training_steps(*paths)] == rows
    else:
        with pytest.raises(ValueError, match=case["says"]):
            read_training_steps(*paths)


def test_metrics_by_hand():
    content = {"heldout": {"auc": None, "labels": {"auc": 0.6}}, "a/b": {"value": 0.5}}
    places = ["heldout/auc", "heldout/labels/auc"]
    assert metrics.find_metric(content, places) == 0.6
    assert metrics.find_metric(content, ["a/b"]) == 0.5, "a name may hold a slash"
    assert metrics.find_metric({"heldout": 3}, places) is None
    assert metrics.mean_over_seeds({0: {"a": 1}, 1: {"a": 2}}, ["a"])["value"] == 1.5
    assert metrics.mean_over_seeds({0: {"a": 1}, 1: {}}, ["a"]) is None
    assert str(metrics.round_metric(-1e-9)) == "0.0"
