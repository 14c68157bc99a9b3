import hashlib

from stages.records.problems import Demonstration, Prompt
from stages.sources import data_card


def prompt(question: str, length: int) -> Prompt:
    return Prompt(
        id=question,
        task="solve",
        question=question,
        prompt=question,
        prompt_ids=[0] * length,
        answer="1",
    )


def test_lengths_are_nearest_ranks():
    assert data_card.lengths(range(1, 101)) == {"min": 1, "median": 50, "p95": 95, "max": 100}
    assert data_card.lengths([7]) == {"min": 7, "median": 7, "p95": 7, "max": 7}
    assert data_card.lengths([3, 1]) == {"min": 1, "median": 1, "p95": 3, "max": 3}
    assert data_card.lengths([]) == {}


def test_overlaps_and_repetitions_are_counted_by_question():
    prompts = {
        "train": [prompt("a?", 1), prompt("A ?", 1), prompt("b?", 1), prompt("b? ", 1)],
        "test": [prompt("B?", 2)],
    }
    card = data_card.describe(prompts, [])
    assert card["counts"] == {"train": 4, "test": 1, "demonstrations": 0}
    assert card["overlaps"] == {"train-test": 1}
    assert card["repeated_questions"] == {"train": 1, "test": 0}


def test_digests_cover_files_and_folders(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "folder" / "b").write_bytes(b"2")
    assert data_card.digests(tmp_path, ["a", "folder"]) == {
        "a": hashlib.sha256(b"1").hexdigest(),
        "folder/b": hashlib.sha256(b"2").hexdigest(),
    }


def test_demonstrations_are_counted_by_task():
    rows = [
        Demonstration(
            id="a", task=task, prompt="", prompt_ids=[], completion="", completion_ids=[1]
        )
        for task in ("solve", "judge", "solve")
    ]
    card = data_card.describe({}, rows)
    assert card["counts"]["demonstrations"] == 3
    assert card["demonstrations_by_task"] == {"solve": 2, "judge": 1}
