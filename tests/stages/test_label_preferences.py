import json
from pathlib import Path

import pytest

from stages import label_preferences
from stages.records import lines
from stages.records.pools import Completion
from stages.records.preferences import Preference
from stages.records.problems import Prompt

PARAMS = "seed: 3\nlabel_preferences:\n  source: verifier\n  max_pairs_per_problem: 2\n"


def write(split: str, answers: dict[str, str], *, gold: str = "4") -> None:
    """A pool in which problem `name` has one completion for each character of `answers[name]`."""
    prompts = [
        Prompt(id=name, task="solve", question="2+2?", prompt="2+2?", prompt_ids=[5], answer=gold)
        for name in answers
    ]
    completions = [
        Completion(
            id=name,
            index=index,
            completion=f"#### {answer}",
            completion_ids=[20 + index, int(answer), 3],
            logprob_sum=-1.0,
            finish_reason="stop",
            seed=0,
        )
        for name, text in answers.items()
        for index, answer in enumerate(text)
    ]
    lines.write(label_preferences.PROMPTS / f"{split}.jsonl", prompts)
    lines.write(label_preferences.POOLS / f"old-{split}" / "pool.jsonl", completions)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(PARAMS, encoding="utf-8")


def test_both_files_hold_the_pairs_of_their_split_and_the_metrics_count_them():
    write("preference", {"a": "4457", "b": "4444", "c": "5678"})
    write("dev", {"d": "45"})
    label_preferences.main("new", "old-preference", "old-dev")
    train = list(lines.read(label_preferences.OUTPUT / "new/train.jsonl", Preference))
    heldout = list(lines.read(label_preferences.OUTPUT / "new/heldout.jsonl", Preference))
    assert [row.id for row in train] == ["a", "a"]
    assert {row.chosen for row in train} == {"#### 4"}
    assert {row.rejected for row in train} == {"#### 5", "#### 7"}
    assert [(row.id, row.chosen, row.rejected) for row in heldout] == [("d", "#### 4", "#### 5")]
    metrics = json.loads(
        (label_preferences.OUTPUT / "new/metrics.json").read_text(encoding="utf-8")
    )
    assert metrics["train"]["problems"] == 3
    assert metrics["train"]["problems_with_pairs"] == 1
    assert metrics["train"]["problems_all_correct"] == 1
    assert metrics["train"]["problems_all_wrong"] == 1
    assert metrics["train"]["pairs"] == 2
    assert metrics["train"]["mean_length_chosen"] == 3.0
    assert metrics["heldout"]["pairs"] == 1


def test_a_second_run_writes_the_same_bytes():
    write("preference", {"a": "4457", "b": "4569"})
    write("dev", {"d": "45"})
    written = []
    for _ in range(2):
        label_preferences.main("new", "old-preference", "old-dev")
        written.append((label_preferences.OUTPUT / "new/train.jsonl").read_bytes())
    assert written[0] == written[1]


def test_a_pool_without_any_pair_is_an_error_that_says_what_to_do():
    write("preference", {"a": "5678", "b": "4444"})
    write("dev", {"d": "45"})
    with pytest.raises(ValueError, match=r"found none: .*'problems_all_wrong': 1.*Sample more"):
        label_preferences.main("new", "old-preference", "old-dev")
