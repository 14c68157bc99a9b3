"""Rows of stages: lines of JSON, pools with their scores, labelled steps, metrics."""

import json
import math
from dataclasses import replace

import judged_rows
import pytest
from judged_rows import prompt

from stages.records import lines, metrics, pools
from stages.records.pools import Completion, Score
from stages.records.steps import StepLabels, read_training_steps

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


@pytest.mark.parametrize("line",
    ['{"id": "a"}', '{"id": "a", "index": 0, "score": 1, "x": 2}', "{", "[1]", "3"])  # fmt: skip
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


POOL = [("a", 0), ("b", 0)]
REFUSED = {
    # completions, scores, what the refusal must name
    "unknown_problem": ([*POOL, ("c", 0)], [], "'c'"),
    "no_completion": ([("b", 0)], [], r"\[\] .*'a'"),
    "too_few": ([("a", 0), ("b", 0), ("b", 1)], [], r"\[0\] .*'a'.* 2"),
    "gap": ([("b", 0), ("a", 1)], [], r"\[1\] .*'a'"),
    "twice": ([*POOL, ("a", 0)], [], r"\[0, 0\] .*'a'"),
    "no_score": (POOL, [score("a", 0, 1.0)], "no score .*'b', index 0"),
    "a_score_too_many": (POOL, [score(*row, 1.0) for row in [*POOL, ("c", 0)]], "'c'"),
    "nan": (POOL, [score("a", 0, math.nan), score("b", 0, 1.0)], "nan .*'outcome' .*'a'"),
    "infinite_step": (POOL, [score("a", 0, 1.0, math.inf), score("b", 0, 1.0)], "inf .*'process'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_pools_and_scores_that_do_not_fit_are_refused(name):
    rows, scores, words = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        pools.align_scores(join(*rows), scores)


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
OTHER, TEST = (replace(STEPS, id="b", prompt="b?"),
    replace(STEPS, prompt="c?", source="processbench"))  # fmt: skip
SPLITS = {
    # training and held-out rows, and what a refusal must name; None: they are read
    "other_problems": ([STEPS, replace(STEPS, index=1)], [OTHER], None),
    "a_test_set_held_out": ([STEPS], [TEST], None),
    "shared": ([STEPS], [STEPS], "1 in both"),
    "one_prompt_of_two_ids": ([OTHER, STEPS], [replace(STEPS, id="c")], r"1 in both.*'a\?'"),
    "a_test_set_to_learn": ([STEPS, TEST], [OTHER], "1 of 2 of processbench.*'a'"),
}


@pytest.mark.parametrize("name", SPLITS)
def test_training_steps_are_of_other_problems_and_of_no_test_set(name, tmp_path):
    rows, held, words = SPLITS[name]
    paths = tmp_path / "train.jsonl", tmp_path / "heldout.jsonl"
    for path, content in zip(paths, (rows, held), strict=True):
        lines.write_lines(path, content)
    if words is None:
        assert read_training_steps(*paths) == (rows, held)
    else:
        with pytest.raises(ValueError, match=words):
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
