import json
from pathlib import Path

import pytest
import stage_inputs
from cached_hub import cache_dataset

from stages import label_people, rows
from stages.models import model_tokenizer
from stages.models.model_tokenizer import train_tokenizer
from stages.records import lines
from stages.records.problems import BadRow
from stages.records.steps import StepLabels, split_steps
from stages.rows import BASE, DATA

SHARED = Path(__file__).parents[3] / "shared/data"
PRESET = {
    "format": {"kind": "processbench"},
    "licence": "Apache-2.0",
    "prompt_template": "Solve: {question}\n",
    "separator": "\n",
    "heldout_share": 1.0,
    "max_tokens": 60,
    "max_bad_share": 0.6,
    "max_long_share": 0.5,
}
ROW = {"id": "r", "problem": "2+2-1?", "steps": ["2 + 2 = 4", "#### 4"], "label": 1,
       "final_answer_correct": False}  # fmt: skip
OUTPUT = DATA / "steps/mine"
FILE = DATA / "raw/mine.jsonl"


@pytest.fixture(autouse=True)
def words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = train_tokenizer(["Solve: what is 2 + 2? 2 + 2 = 4"], 700)
    words.save_pretrained(rows.locate_policy(BASE, 0))
    FILE.parent.mkdir()
    stage_inputs.configure(PRESET)
    return words


def run(
    file: str = "raw/mine.jsonl", side: str = "heldout"
) -> tuple[list[StepLabels], list[BadRow], dict]:
    arguments = ("mine", "--by", "people", "--preset", "mine", "--from", BASE, "--on", file)
    label_people.main("steps_people", *arguments)
    result = list(lines.read_lines(OUTPUT / f"{side}.jsonl", StepLabels))
    bad = list(lines.read_lines(OUTPUT / "quarantine.jsonl", BadRow))
    return result, bad, stage_inputs.metrics(OUTPUT)


def test_a_solution_is_tokenised_step_by_step_and_ends_once(words):
    FILE.write_text(json.dumps(ROW), encoding="utf-8")
    ((row,), bad, metrics) = run()
    assert (row.prompt, words.decode(row.prompt_ids)) == ("Solve: 2+2-1?\n", "Solve: 2+2-1?\n")
    assert row.steps == ["2 + 2 = 4\n", "#### 4"]
    assert [words.decode(ids) for ids in row.step_ids] == ["2 + 2 = 4\n", "#### 4<|end|>"]
    assert (row.labels, row.true_labels) == ([1.0, 0.0], [True, False])
    assert (row.id, row.index, row.correct, row.source) == ("r", 0, False, "processbench")
    assert bad == []
    assert metrics["solutions"]["erroneous"] == metrics["labels"]["wrong"] == 1


def test_the_log_says_which_columns_are_read(capsys):
    FILE.write_text(json.dumps(ROW | {"generator": "m", "context": "TABLE"}), encoding="utf-8")
    stage_inputs.configure(PRESET | {"ignore": ["context"]})
    run()
    assert "columns that are not read: generator, context\n" in capsys.readouterr().out


def test_a_step_with_the_separator_inside_is_cut_as_scoring_cuts_its_tokens(words):
    steps = ["2 + 2:\n\n 4 - 1", "#### 4\n4"]
    FILE.write_text("\n".join(map(json.dumps, [ROW, ROW | {"id": "s", "steps": steps}])))
    ((_, row), _, metrics) = run()
    assert row.steps == ["2 + 2:\n\n", " 4 - 1\n", "#### 4\n", "4"]
    assert row.labels == [None, 1.0, None, 0.0]
    assert row.true_labels == [None, True, None, False]
    joined = [item for ids in row.step_ids for item in ids]
    assert split_steps(joined, model_tokenizer.make_decode(words), "\n") == row.step_ids
    assert metrics["cut_at_separator"] == {"solutions": 1, "steps": 2}
    assert metrics["labels"] == {"steps": 6, "labelled": 4, "wrong": 2, "mean": 0.5}


def test_what_is_left_out_is_told_with_its_line_and_reason():
    bad = [
        ROW | {"label": 2},
        ROW | {"problem": "<|step|>"},
        ROW | {"steps": ["x" * 99, "4"]},
    ]
    text = "\n".join(["{oops", *map(json.dumps, [ROW, *bad])])
    FILE.write_text(text, encoding="utf-8")
    result, bad, metrics = run()
    assert len(result) == 1
    assert [(row.line, row.reason.partition(":")[0]) for row in bad] == [
        (1, "not JSON"),
        (3, "no label"),
        (4, "special token"),
        (5, "over-long solution"),
    ]
    assert sum(metrics["quarantined"].values()) == 4
    stage_inputs.configure(PRESET | {"max_long_share": 0.1})
    with pytest.raises(ValueError, match=r"1 of 5 rows .*mine\.max_long_share"):
        run()
    stage_inputs.configure(PRESET | {"max_bad_share": 0.5})
    with pytest.raises(ValueError, match=r"3 of 5 rows .*mine\.max_bad_share"):
        run()


def test_a_problem_is_on_one_side_whoever_else_is_in_the_file():
    kept = {}
    for count in (40, 30):
        several = [
            ROW | {"id": f"r{n}-{i}", "problem": f"{n}?"} for n in range(count) for i in "ab"
        ]
        FILE.write_text("\n".join(map(json.dumps, several)), encoding="utf-8")
        stage_inputs.configure(PRESET | {"heldout_share": 0.25})
        kept[count] = {
            side: {row.prompt for row in run(side=side)[0]} for side in ("train", "heldout")
        }
        assert not kept[count]["train"] & kept[count]["heldout"]
        assert 0 < len(kept[count]["heldout"]) < count / 2
    assert kept[30]["heldout"] <= kept[40]["heldout"]
    assert kept[30]["train"] <= kept[40]["train"]


def test_a_side_that_would_be_empty_is_told():
    FILE.write_text(json.dumps(ROW), encoding="utf-8")
    stage_inputs.configure(PRESET | {"heldout_share": 0.5})
    with pytest.raises(ValueError, match=r"1 rows leave \w+ empty"):
        run()


def test_a_second_run_writes_the_same_bytes():
    FILE.write_text(json.dumps(ROW), encoding="utf-8")
    files = ("train.jsonl", "heldout.jsonl", "quarantine.jsonl", "metrics.json")
    written = []
    for _ in range(2):
        run()
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
def test_real_rows(form, file, solutions, labelled, words):
    stage_inputs.configure(PRESET | {"format": form, "max_tokens": 100_000, "max_bad_share": 0.0})
    (DATA / "raw/shared").symlink_to(SHARED)
    result, bad, metrics = run(f"raw/shared/{file}")
    assert bad == []
    assert len(result) == metrics["solutions"]["all"] == solutions
    assert labelled in (None, metrics["labels"]["labelled"])
    assert len({(row.id, row.index) for row in result}) == len(result)
    for row in result:
        assert len(row.steps) == len(row.step_ids) == len(row.labels) == len(row.num_completions)
    for row in result[::8]:
        joined = [item for ids in row.step_ids for item in ids]
        assert split_steps(joined, model_tokenizer.make_decode(words), "\n") == row.step_ids
    if form["kind"] == "processbench":
        assert metrics["solutions"]["erroneous"] == 207
        assert metrics["solutions"]["without_error"] == 193
        assert metrics["cut_at_separator"] == {"solutions": 77, "steps": 272}


def test_a_token_without_an_embedding_is_refused():
    FILE.write_text(json.dumps(ROW | {"steps": ["xyzzy", "#### 4"]}), encoding="utf-8")
    stage_inputs.configure(PRESET, model=stage_inputs.add_token_without_embedding("xyzzy"))
    with pytest.raises(ValueError, match="'xyzzy'"):
        run()


def test_step_labels_of_the_hub_are_read(tmp_path, monkeypatch):
    cache_dataset(tmp_path, "steps", {"gsm8k": [ROW]}, monkeypatch)
    ((row,), bad, _) = run("hub/owner/steps")
    assert (row.id, row.steps, bad) == ("r", ["2 + 2 = 4\n", "#### 4"], [])
