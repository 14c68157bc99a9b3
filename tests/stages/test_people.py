"""Labels of people out of a file: every row is used, or in quarantine with its line and reason.

Files and what becomes of them are in test_people.yaml.
"""

from pathlib import Path

import pytest
import stage_inputs
from cached_hub import cache_dataset
from ruamel.yaml import YAML
from stage_inputs import RAW_SOLUTION, list_raw_pairs

from stages import rows
from stages.models import model_tokenizer
from stages.records import lines
from stages.records.preferences import Preference, UnpairedExample, read_pairs
from stages.records.problems import BadRow, Prompt
from stages.records.steps import StepLabels, split_steps
from stages.rows import DATA, PROMPTS

TABLES = YAML(typ="safe").load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
NAMES = {"prompt": "prompt", "chosen": "chosen", "rejected": "rejected", "probability": None}
LIMITS = {"licence": "MIT", "max_bad_share": 0.6, "max_long_share": 0.5}
PRESETS = {
    "label_people": LIMITS | {"columns": NAMES, "heldout_share": 0.25, "max_tokens": 40},
    "steps_people": LIMITS | {
        "format": {"kind": "processbench"}, "separator": "\n", "heldout_share": 1.0,
        "prompt_template": "Solve: {question}\n", "max_tokens": 60,
    },
}  # fmt: skip
PLACES = {"label_people": DATA / "pairs/new", "steps_people": DATA / "steps/new"}
SIDES = ("train", "heldout")
pytestmark = pytest.mark.usefixtures("stage_world")


def read(entry, on, model=None, **changes):
    """The rows of both sides, the quarantine and metrics.json."""
    words = stage_inputs.make_words(entry, on, "base")
    sections = {} if model is None else {"model": model}
    stage_inputs.run_stage(entry, words, PRESETS[entry] | changes, **sections)
    kind = Preference if entry == "label_people" else StepLabels
    sides = [list(lines.read_lines(PLACES[entry] / f"{side}.jsonl", kind)) for side in SIDES]
    bad = list(lines.read_lines(PLACES[entry] / "quarantine.jsonl", BadRow))
    return *sides, bad, stage_inputs.metrics(PLACES[entry])


def read_raw(entry, content, **changes):
    stage_inputs.write_raw("mine.jsonl", content)
    return read(entry, "raw/mine.jsonl", **changes)


def list_rows(content):
    """The rows of a table: a row with `times` is several, with its number in place of {}."""
    for row in content:
        fields = row if isinstance(row, dict) else {"times": 0}
        yield from [
            {key: value.format(number) if isinstance(value, str) else value
             for key, value in fields.items() if key != "times"}
            for number in range(fields.get("times", 1))
        ] or [row]  # fmt: skip


@pytest.mark.parametrize("case", TABLES["read"], ids=lambda case: case["it"])
def test_every_row_is_used_or_in_quarantine(case):
    content, expected = [*list_rows(case["rows"])], case["others"]
    entry = case.get("entry", "label_people")
    train, heldout, bad, metrics = read_raw(entry, content, **case.get("preset", {}))
    assert len(train) + len(heldout) == case["used"]
    assert (metrics["quarantined"], metrics["rows"]) == (expected, len(content))
    assert not {row.id for row in train} & {row.id for row in heldout}
    if [*expected] == ["merged"]:  # a soft label is of the better answer
        votes = {(row.rejected, row.probability) for row in [*train, *heldout]}
        assert votes == {(" no", 0.666666666667)}
        assert metrics["train"]["mean_probability"] == pytest.approx(2 / 3, abs=1e-6)
    else:
        reasons = [(row.line, row.reason.partition(":")[0]) for row in bad]
        assert {kind: [name for _, name in reasons].count(kind) for kind in expected} == expected
        unreadable = [number for number, row in enumerate(content, 1) if row == "{oops"]
        assert [line for line, reason in reasons if reason == "not JSON"] == unreadable


@pytest.mark.parametrize("case", TABLES["refused"], ids=lambda case: case["it"])
def test_a_file_of_which_too_little_is_left_is_refused(case):
    model = stage_inputs.add_token_without_embedding(case["odd"]) if "odd" in case else None
    entry = case.get("entry", "label_people")
    with pytest.raises(ValueError, match=case["says"]):
        read_raw(entry, [*list_rows(case["rows"])], model=model, **case.get("preset", {}))
    assert not PLACES[entry].exists()


@pytest.mark.parametrize("split", ["dev", "test"])
def test_conversations_that_open_as_a_test_prompt_are_left_out_and_counted(split):
    empty = {"task": "chat", "prompt": "", "prompt_ids": [], "answer": None}
    for each in ("dev", "test"):
        lines.write_lines(PROMPTS / f"{each}.jsonl", [])
    shown = ["3?", "Human: 7?\n\nAssistant: 7\n\nHuman: And?"]
    prompts = [Prompt(id=text, question=text, **empty) for text in shown]
    lines.write_lines(PROMPTS / f"{split}.jsonl", prompts)
    content = [row | {"label": 0.25} for row in list_raw_pairs(20)]
    columns = NAMES | {"probability": "label"}
    train, heldout, _, metrics = read_raw("label_people", content, columns=columns)
    prompts = {row.prompt for row in [*train, *heldout]}
    assert prompts == {f"{i}?" for i in range(20)} - {"3?", "7?"}
    assert metrics["of_dev_and_test"] == 2
    assert {(row.chosen, row.probability) for row in [*train, *heldout]} == {(" no", 0.75)}


def test_labelled_completions_are_for_kto_alone():
    content = [{"prompt": f"{i}?", "completion": f" {i}", "label": i % 3 > 0} for i in range(30)]
    with pytest.raises(FileNotFoundError):
        read_raw("label_people", content, columns={})
    folder = PLACES["label_people"]
    sides = [list(lines.read_lines(folder / f"{side}_labelled.jsonl", UnpairedExample))
             for side in SIDES]  # fmt: skip
    assert sum(map(len, sides)) == 30
    assert sum(row.desirable for side in sides for row in side) == 20
    assert stage_inputs.metrics(folder)["train"]["completions"] == len(sides[0])
    with pytest.raises(ValueError, match="kto"):
        read_pairs(folder, "train")


def test_a_data_set_of_the_hub_is_read_as_a_file_of_the_split_that_the_preset_names(
    tmp_path, monkeypatch
):
    splits = {"train": list_raw_pairs(20), "test": list_raw_pairs(30)[20:]}
    cache_dataset(tmp_path, "mine", splits, monkeypatch)
    expected = read_raw("label_people", splits["train"])[:2]
    assert read("label_people", "hub/owner/mine")[:2] == expected
    for name, split in (("mine", "validation"), ("other", None)):
        with pytest.raises(ValueError, match=split or "owner/other"):
            read("label_people", f"hub/owner/{name}", split=split)
    for name, content in splits.items():
        stage_inputs.write_raw(f"parts/{name}.jsonl", content)
    for on in ("hub/owner/mine", "raw/parts"):
        for split, count in ((None, 20), ("test", 10)):
            assert sum(map(len, read("label_people", on, split=split)[:2])) == count


def test_step_labels_of_the_hub_are_read(tmp_path, monkeypatch):
    cache_dataset(tmp_path, "steps", {"gsm8k": [RAW_SOLUTION]}, monkeypatch)
    _, (row,), bad, _ = read("steps_people", "hub/owner/steps")
    assert (row.id, row.steps, bad) == ("r", ["2 + 2 = 4\n", "#### 4"], [])


def test_a_solution_is_tokenised_step_by_step_and_cut_where_scoring_cuts_its_tokens():
    words = model_tokenizer.load_tokenizer(rows.locate_policy(rows.BASE, 0))
    steps = ["2 + 2:\n\n 4 - 1", "#### 4\n4"]
    content = [RAW_SOLUTION, RAW_SOLUTION | {"id": "s", "steps": steps}]
    _, (row, cut), bad, metrics = read_raw("steps_people", content)
    assert (row.prompt, words.decode(row.prompt_ids)) == ("Solve: 2+2-1?\n", "Solve: 2+2-1?\n")
    assert [words.decode(ids) for ids in row.step_ids] == ["2 + 2 = 4\n", "#### 4<|end|>"]
    assert (row.labels, row.true_labels) == ([1.0, 0.0], [True, False])
    assert (row.id, row.index, row.correct, row.source) == ("r", 0, False, "processbench")
    assert cut.steps == ["2 + 2:\n\n", " 4 - 1\n", "#### 4\n", "4"]
    assert cut.labels == [None, 1.0, None, 0.0]
    assert cut.true_labels == [None, True, None, False]
    joined = [item for step in cut.step_ids for item in step]
    assert split_steps(joined, model_tokenizer.make_decode(words), "\n") == cut.step_ids
    assert metrics["cut_at_separator"] == {"solutions": 1, "steps": 3 - 1}
    assert metrics["labels"] == {"steps": 6, "labelled": 4, "wrong": 2, "mean": 0.5}
    assert bad == []
