import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from stages import import_steps
from stages.models import model_tokenizer
from stages.records import lines
from stages.records.problems import BadRow
from stages.records.steps import StepLabels

SHARED = Path(__file__).parents[3] / "shared/data"
SOURCE = {
    "format": {"kind": "processbench"},
    "licence": "Apache-2.0",
    "prompt_template": "Solve: {question}\n",
    "separator": "\n",
    "max_tokens": 60,
    "max_bad_share": 0.6,
    "max_long_share": 0.5,
}
ROW = {"id": "r", "problem": "2+2-1?", "steps": ["2 + 2 = 4", "#### 4"], "label": 1,
       "final_answer_correct": False}  # fmt: skip
OUTPUT = import_steps.OUTPUT / "mine"


@pytest.fixture(autouse=True)
def words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = model_tokenizer.train_tokenizer(["Solve: what is 2 + 2? 2 + 2 = 4"], 700)
    words.save_pretrained(import_steps.TOKENIZER)
    write_params()
    return words


def write_params(**changes: object) -> None:
    with Path("params.yaml").open("w", encoding="utf-8") as file:
        YAML().dump({"import_steps": {"theirs": SOURCE | changes}}, file)


def run(file: str) -> tuple[list[StepLabels], list[BadRow], dict]:
    import_steps.main("mine", "theirs", file)
    rows = list(lines.read(OUTPUT / "steps.jsonl", StepLabels))
    bad = list(lines.read(OUTPUT / "quarantine.jsonl", BadRow))
    return rows, bad, json.loads((OUTPUT / "metrics.json").read_text(encoding="utf-8"))


def test_a_solution_is_tokenised_step_by_step_and_ends_once(words):
    Path("mine.jsonl").write_text(json.dumps(ROW), encoding="utf-8")
    ((row,), bad, metrics) = run("mine.jsonl")
    assert (row.prompt, words.decode(row.prompt_ids)) == ("Solve: 2+2-1?\n", "Solve: 2+2-1?\n")
    assert row.steps == ["2 + 2 = 4\n", "#### 4"]
    assert [words.decode(ids) for ids in row.step_ids] == ["2 + 2 = 4\n", "#### 4<|end|>"]
    assert (row.labels, row.true_labels) == ([1.0, 0.0], [True, False])
    assert (row.id, row.index, row.correct, row.source) == ("r", 0, False, "processbench")
    assert bad == []
    assert metrics["solutions"]["erroneous"] == metrics["labels"]["wrong"] == 1


def test_what_is_left_out_is_told_with_its_line_and_reason():
    bad = [
        ROW | {"label": 2},
        ROW | {"problem": "<|step|>"},
        ROW | {"steps": ["x" * 99, "4"]},
    ]
    text = "\n".join(["{oops", *map(json.dumps, [ROW, *bad])])
    Path("mine.jsonl").write_text(text, encoding="utf-8")
    rows, bad, metrics = run("mine.jsonl")
    assert len(rows) == 1
    assert [(row.line, row.reason.partition(":")[0]) for row in bad] == [
        (1, "not JSON"),
        (3, "no label"),
        (4, "special token"),
        (5, "over-long solution"),
    ]
    assert sum(metrics["quarantined"].values()) == 4
    write_params(max_long_share=0.1)
    with pytest.raises(ValueError, match=r"1 of 5 rows .*theirs\.max_long_share"):
        run("mine.jsonl")
    write_params(max_bad_share=0.5)
    with pytest.raises(ValueError, match=r"3 of 5 rows .*theirs\.max_bad_share"):
        run("mine.jsonl")


def test_a_second_run_writes_the_same_bytes():
    Path("mine.jsonl").write_text(json.dumps(ROW), encoding="utf-8")
    files = ("steps.jsonl", "quarantine.jsonl", "metrics.json")
    written = []
    for _ in range(2):
        run("mine.jsonl")
        written.append([(OUTPUT / name).read_bytes() for name in files])
    assert written[0] == written[1]


@pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared/data")
@pytest.mark.parametrize(
    ("form", "file", "solutions", "labelled"),
    [
        ({"kind": "processbench"}, "processbench/gsm8k.json.gz", 400, None),
        (
            {"kind": "math_shepherd", "num_completions": 8},
            "prm_format_samples/math_shepherd_sample7.jsonl",
            7,
            25,
        ),
        (
            {
                "kind": "prm800k",
                "neutral": "right",
                "alternatives": "drop",
                "shared_steps": "once",
            },
            "prm_format_samples/prm800k_sample6.jsonl",
            6,
            5 + 7 + 5 + 7 + 7 + 12,
        ),
        (
            {
                "kind": "math_aps",
                "labels": "soft",
                "hard_above": 0.0,
                "num_completions": 32,
                "shared_steps": "once",
            },
            "prm_format_samples/math_aps_sample3.jsonl",
            81 + 7 + 36,
            85 + 9 + 38,
        ),
    ],
)
def test_real_rows(form, file, solutions, labelled):
    write_params(format=form, max_tokens=100_000, max_bad_share=0.0)
    rows, bad, metrics = run(str(SHARED / file))
    assert bad == []
    assert len(rows) == metrics["solutions"]["all"] == solutions
    assert labelled in (None, metrics["labels"]["labelled"])
    assert len({(row.id, row.index) for row in rows}) == len(rows)
    for row in rows:
        assert len(row.steps) == len(row.step_ids) == len(row.labels) == len(row.num_completions)
    if form["kind"] == "processbench":
        assert metrics["solutions"]["erroneous"] == 207
        assert metrics["solutions"]["without_error"] == 193
