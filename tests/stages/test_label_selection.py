import pytest
import stage_inputs
from stage_inputs import SEED, WORDS, write_answers

from stages import label_verifier
from stages.records import lines
from stages.records.problems import Demonstration
from stages.rows import DATA

OWN = DATA / f"pairs/new/{SEED}"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stage_inputs.configure({"max_per_problem": 2})


def test_demonstrations_are_right_completions_and_the_metrics_count_them():
    write_answers("train", {"a": "4444", "b": "4567", "c": "5678"})
    written = []
    for _ in range(2):
        label_verifier.main("label_selection", *WORDS)
        written.append((OWN / "demonstrations.jsonl").read_bytes())
    assert written[0] == written[1]
    rows = list(lines.read_lines(OWN / "demonstrations.jsonl", Demonstration))
    assert [row.id for row in rows] == ["a", "a", "b"]
    assert {row.completion for row in rows} == {"#### 4"}
    expected = {"problems": 3, "problems_with_any": 2, "kept": 3, "share": 0.25}
    assert stage_inputs.metrics(OWN) == expected


def test_a_pool_without_any_right_completion_is_an_error_that_says_what_to_do():
    write_answers("train", {"a": "5678"})
    with pytest.raises(ValueError, match=r"found none: .*Sample more of each problem"):
        label_verifier.main("label_selection", *WORDS)
