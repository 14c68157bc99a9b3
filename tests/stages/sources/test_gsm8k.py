import json
from pathlib import Path

import pytest

from stages.records.problems import BadRow, Problem
from stages.sources import gsm8k


def config(folder: Path) -> gsm8k.Config:
    return gsm8k.Config(kind="gsm8k", path=str(folder), revision=None, licence="MIT")


def write(folder: Path, split: str, *rows: dict[str, object]) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")


def test_calculator_annotations_are_taken_out_and_splits_kept(tmp_path):
    write(
        tmp_path,
        "train",
        {"question": "How many?", "answer": "48/2 = <<48/2=24>>24 clips.\n#### 1,024"},
    )
    write(tmp_path, "test", {"question": "And now?", "answer": "#### 3"})
    assert list(gsm8k.problems(config(tmp_path))) == [
        Problem(
            id="train-00001",
            question="How many?",
            answer="1,024",
            solution="48/2 = 24 clips.\n#### 1,024",
            split="train",
            line=1,
        ),
        Problem(
            id="test-00001",
            question="And now?",
            answer="3",
            solution="\n#### 3",
            split="test",
            line=1,
        ),
    ]


@pytest.mark.parametrize("answer", ["24 clips", "####", "24 clips\n####  "])
def test_an_answer_without_its_mark_is_quarantined(tmp_path, answer):
    write(tmp_path, "train", {"question": "How many?", "answer": answer})
    write(tmp_path, "test", {"question": "And now?", "answer": "#### 3"})
    bad, _ = gsm8k.problems(config(tmp_path))
    assert isinstance(bad, BadRow)
    assert (bad.file, bad.line) == ("train.jsonl", 1)
    assert bad.reason.startswith("answer does not parse")


def test_a_missing_file_is_named(tmp_path):
    write(tmp_path, "train", {"question": "How many?", "answer": "#### 3"})
    with pytest.raises(ValueError, match=r"test\.jsonl: expected a file"):
        list(gsm8k.problems(config(tmp_path)))
