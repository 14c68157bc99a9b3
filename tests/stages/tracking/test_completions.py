"""Which completions are shown, with which columns."""

import json
from dataclasses import asdict

import pytest
import report_inputs

from stages.tracking import completions


def write(path, steps, rows_of_a_step=20, torn=""):
    rows = [
        {"completion": f"{step}-{index}", "completion_ids": [1, 2], "id": "a", "step": step}
        for step in steps
        for index in range(rows_of_a_step)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + torn)
    return path


@pytest.mark.parametrize(
    ("steps", "shown"),
    [
        (range(1), {0: 20}),
        (range(2), {0: 20, 1: 20}),
        (range(5), {0: 16, 2: 16, 4: 16}),
        ([0, 1, 7, 8], {0: 16, 7: 16, 8: 16}),  # the step after the middle, where it has none
        (range(300), {0: 16, 149: 16, 299: 16}),
    ],
)
def test_the_first_rows_of_the_first_the_middle_and_the_last_step(tmp_path, steps, shown):
    path = write(tmp_path / "rollouts.jsonl", steps, torn='{"completion": "torn')
    rows = completions.read_rollouts(path)
    assert [row["completion"] for row in rows] == [
        f"{step}-{index}" for step, count in shown.items() for index in range(count)
    ]


@pytest.mark.parametrize("torn", ["", '{"step'])
def test_a_file_without_a_whole_row_has_none(tmp_path, torn):
    assert completions.read_rollouts(write(tmp_path / "rollouts.jsonl", [], torn=torn)) == []


def test_a_row_has_the_question_and_the_gold_answer_of_its_problem(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    completions.PROMPTS.mkdir(parents=True)
    for split, name in (("dev", "b"), ("train", "a")):
        row = {"id": name, "question": f"{name}?", "answer": "4", "prompt": f"Q: {name}?"}
        (completions.PROMPTS / f"{split}.jsonl").write_text(json.dumps(row) + "\n")
    rows = [
        {"completion": "4", "completion_ids": [1], "id": "a", "reward": 1.0, "step": 0},
        {"completion": "5", "completion_ids": [1], "id": "of no split", "reward": 0.0, "step": 0},
    ]
    table = completions.to_table(rows)
    assert table["columns"] == ["step", "question", "completion", "reward", "answer", "id"]
    assert table["data"] == [
        [0, "a?", "4", 1.0, "4", "a"],
        [0, None, "5", 0.0, None, "of no split"],
    ]


def test_rollouts_of_an_environment_are_conversations_of_the_first_middle_and_last_step(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    completions.PROMPTS.mkdir(parents=True)
    rows = [
        {"step": step, "id": "s0", "index": 0, "completion": "raw", "completion_ids": [1],
         "reward": 1.0, "episode": asdict(report_inputs.episode("s0", 0, is_right=True))}
        for step in range(7)
    ]  # fmt: skip
    path = tmp_path / "rollouts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = completions.to_table(completions.read_rollouts(path))
    assert table["columns"] == [
        "step", "conversation", "completion", "reward", "success", "id", "index", "turns",
        "tool_calls", "ending",
    ]  # fmt: skip
    assert [row[0] for row in table["data"]] == [0, 3, 6]
    assert table["data"][0][2:] == ["raw", 1.0, True, "s0", 0, 2, 1, "done"]
    begin, end = "[system]\nAnswer with a number.", "1 tool call, ended by the environment]"
    assert table["data"][0][1].startswith(begin)
    assert table["data"][0][1].endswith(end)
