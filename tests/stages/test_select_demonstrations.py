import json
from pathlib import Path

import pytest

from stages import select_demonstrations
from stages.records import lines
from stages.records.pools import Completion
from stages.records.problems import Demonstration, Prompt

PARAMS = "seed: 3\nselect_demonstrations: {source: verifier, max_per_problem: 2}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(PARAMS, encoding="utf-8")


def write(answers: dict[str, str]) -> None:
    lines.write(
        select_demonstrations.PROMPTS / "train.jsonl",
        [
            Prompt(id=name, task="solve", question="", prompt="2+2?", prompt_ids=[5], answer="4")
            for name in answers
        ],
    )
    rows = [
        Completion(
            id=name,
            index=index,
            completion=f"#### {answer}",
            completion_ids=[20 + index, 3],
            logprob_sum=-1.0,
            finish_reason="stop",
            seed=0,
        )
        for name, text in answers.items()
        for index, answer in enumerate(text)
    ]
    lines.write(select_demonstrations.POOLS / "old/pool.jsonl", rows)


def test_demonstrations_are_right_completions_and_the_metrics_count_them():
    write({"a": "4444", "b": "4567", "c": "5678"})
    written = []
    for _ in range(2):
        select_demonstrations.main("new", "old", "train")
        written.append((select_demonstrations.OUTPUT / "new/demonstrations.jsonl").read_bytes())
    assert written[0] == written[1]
    path = select_demonstrations.OUTPUT / "new/demonstrations.jsonl"
    rows = list(lines.read(path, Demonstration))
    assert [row.id for row in rows] == ["a", "a", "b"]
    assert {row.completion for row in rows} == {"#### 4"}
    metrics = json.loads((select_demonstrations.OUTPUT / "new/metrics.json").read_text())
    assert metrics == {"problems": 3, "problems_with_any": 2, "kept": 3, "share": 0.25}


def test_a_pool_without_any_right_completion_is_an_error_that_says_what_to_do():
    write({"a": "5678"})
    with pytest.raises(ValueError, match=r"found none: .*Sample more of each problem"):
        select_demonstrations.main("new", "old", "train")
