"""Labels of people out of a file: every row is used, or in quarantine with its line and reason."""

import gzip
import json

import pytest
import stage_inputs
from cached_hub import cache_dataset
from stage_inputs import RAW_SOLUTION, ROOT, list_raw_pairs

from stages import rows
from stages.models import model_tokenizer
from stages.records import lines
from stages.records.preferences import Preference, UnpairedExample, read_pairs
from stages.records.problems import BadRow, Prompt
from stages.records.steps import StepLabels, split_steps
from stages.rows import DATA, PROMPTS

SHARED = ROOT.parent / "shared/data"
HH = SHARED / "hh_rlhf_harmless/test.jsonl.gz"
NAMES = {"prompt": "prompt", "chosen": "chosen", "rejected": "rejected", "probability": None}
PAIRS = {"columns": NAMES, "licence": "MIT", "heldout_share": 0.25, "max_tokens": 40,
         "max_bad_share": 0.5, "max_long_share": 0.5}  # fmt: skip
STEPS = {
    "format": {"kind": "processbench"}, "licence": "Apache-2.0", "separator": "\n",
    "prompt_template": "Solve: {question}\n", "heldout_share": 1.0, "max_tokens": 60,
    "max_bad_share": 0.6, "max_long_share": 0.5,
}  # fmt: skip
PLACES = {"label_people": DATA / "pairs/new", "steps_people": DATA / "steps/new"}
SIDES = ("train", "heldout")
pytestmark = pytest.mark.usefixtures("stage_world")


def read(entry, on, **changes):
    """The rows of both sides, the quarantine and metrics.json."""
    preset = (PAIRS if entry == "label_people" else STEPS) | changes
    sections = {"model": changes.pop("model")} if "model" in changes else {}
    preset = {key: value for key, value in preset.items() if key != "model"}
    words = stage_inputs.make_words(entry, on, "base")
    stage_inputs.run_stage(entry, words, preset, **sections)
    folder = PLACES[entry]
    kind = Preference if entry == "label_people" else StepLabels
    sides = [list(lines.read_lines(folder / f"{side}.jsonl", kind)) for side in SIDES]
    bad = list(lines.read_lines(folder / "quarantine.jsonl", BadRow))
    return *sides, bad, stage_inputs.metrics(folder)


def read_raw(entry, content, **changes):
    stage_inputs.write_raw("mine.jsonl", content)
    return read(entry, "raw/mine.jsonl", **changes)


RANKED = {"chosen": None, "rejected": None, "prompt": "prompt", "answers": "ranked"}
RANKS = [{"prompt": f"{i}?", "ranked": [" a", " b", " c"]} for i in range(20)]
LONG = {"prompt": "9?", "ranked": ["9", "n", "m", "k", "l", "x" * 99]}
VOTES = [
    vote | {"judge": i}
    if i % 3 else vote | {"judge": i, "chosen": vote["rejected"], "rejected": vote["chosen"]}
    for i in range(60)
    for vote in [list_raw_pairs(20)[i // 3]]
]  # fmt: skip
BAD_PAIRS = [
    "{oops", {"prompt": "", "chosen": "a", "rejected": "b"},
    {"prompt": "p", "chosen": "a", "rejected": ""},
    {"prompt": "p", "chosen": "a", "rejected": " a"},
    {"prompt": "p", "chosen": "a <|end|> b", "rejected": "b"},
    {"prompt": "p", "chosen": "x" * 99, "rejected": "b"}, {"chosen": "a", "rejected": "b"},
    {"prompt": "a?", "chosen": "b", "rejected": "c", "score_chosen": 5, "score_rejected": 5},
]  # fmt: skip
STEPS_OF = [RAW_SOLUTION | {"id": f"r{n}", "problem": f"{n}?"} for n in range(4)]
READ = {
    "each reason": ("label_people", [*list_raw_pairs(20), *BAD_PAIRS], {}, 20, {
        "not JSON": 1, "no prompt": 2, "empty answer": 1, "equal answers": 1, "special token": 1,
        "over-long pair": 1, "tie": 1}),
    "rankings": ("label_people", [*RANKS, RANKS[0], "{oops"], {"columns": RANKED}, 60,
                 {"not JSON": 1, "repeated": 1}),
    "a row in two bad pairs": (
        "label_people", [*RANKS[:9], {"prompt": "9?", "ranked": ["9", "no", "n <|end|> o"]}],
        {"columns": RANKED, "max_bad_share": 0.1}, 28, {"special token": 2}),
    "votes": ("label_people", VOTES, {"max_bad_share": 0.0}, 20, {"merged": 40}),
    "steps": ("steps_people", [
        "{oops", *STEPS_OF, RAW_SOLUTION | {"label": 2},
        RAW_SOLUTION | {"problem": "<|step|>"},
        RAW_SOLUTION | {"steps": ["x" * 99, "4"]}], {}, 4,
        {"not JSON": 1, "no label": 1, "special token": 1, "over-long solution": 1}),
}  # fmt: skip
"""Case -> entry point, rows of the file, the preset's keys, rows that are used, others by kind."""


@pytest.mark.parametrize("case", READ)
def test_every_row_is_used_or_in_quarantine(case):
    entry, content, changes, number, expected = READ[case]
    train, heldout, bad, metrics = read_raw(entry, content, **changes)
    assert len(train) + len(heldout) == number
    assert metrics["quarantined"] == expected
    assert metrics["rows"] == len(content)
    assert not {row.id for row in train} & {row.id for row in heldout}
    if "merged" not in expected:
        assert len(bad) == sum(expected.values())
        reasons = {row.line: row.reason.partition(":")[0] for row in bad}
        assert set(reasons.values()) == set(expected)
        unreadable = [number for number, row in enumerate(content, 1) if row == "{oops"]
        assert [line for line, reason in reasons.items() if reason == "not JSON"] == unreadable


REFUSED = {
    "bad rows": ("label_people", [*list_raw_pairs(20), "{oops"], {"max_bad_share": 0.0},
                 r"mine\.max_bad_share"),
    "long rows": ("label_people", list_raw_pairs(20), {"max_tokens": 4, "max_long_share": 0.9},
                  r"20 .*mine\.max_long_share"),
    "bad rows, not pairs": ("label_people", [*RANKS[:9], "{oops"],
                            {"columns": RANKED, "max_bad_share": 0.099}, "1 of 10 "),
    "long pairs, not rows": ("label_people", [*RANKS[:9], LONG],
                             {"columns": RANKED, "max_long_share": 0.1}, "5 of 42 "),
    "lone ratings": (
        "label_people", [{"prompt": f"{i}?", "text": "a", "score": i} for i in range(9)],
        {"columns": {"prompt": "prompt", "chosen": None, "rejected": None, "answer": "text",
                     "score": "score"}}, "9 alone"),
    "bad steps": ("steps_people", [*STEPS_OF, *["{oops"] * 3], {"max_bad_share": 0.4}, "3 of 7 "),
    "long steps": ("steps_people", [*STEPS_OF, RAW_SOLUTION | {"steps": ["x" * 99, "4"]}],
                   {"max_long_share": 0.1}, r"mine\.max_"),
    "an empty side": ("steps_people", [RAW_SOLUTION], {"heldout_share": 0.5}, "empty"),
    "no split": ("label_people", list_raw_pairs(9), {"revision": "main"}, "revision"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_of_which_too_little_is_left_is_refused(case):
    entry, content, changes, mentions = REFUSED[case]
    with pytest.raises(ValueError, match=mentions):
        read_raw(entry, content, **changes)
    assert not PLACES[entry].exists()


@pytest.mark.parametrize(("entry", "key"), [
    ("label_people", "prompt"), ("label_people", "chosen"), ("label_people", "rejected"),
    ("steps_people", "steps"),
])  # fmt: skip
def test_a_token_without_an_embedding_is_refused(entry, key):
    row = list_raw_pairs(1)[0] if entry == "label_people" else RAW_SOLUTION
    row = row | {key: ["xyzzy", "4"] if key == "steps" else f"{row[key]} xyzzy"}
    model = stage_inputs.add_token_without_embedding("xyzzy")
    with pytest.raises(ValueError, match="xyzzy"):
        read_raw(entry, [row | {"id": str(n)} if "id" in row else row for n in range(9)],
                 model=model)  # fmt: skip


@pytest.mark.parametrize("split", ["dev", "test"])
def test_conversations_that_open_as_a_test_prompt_are_left_out_and_counted(split):
    empty = {"task": "chat", "prompt": "", "prompt_ids": [], "answer": None}
    for each in ("dev", "test"):
        lines.write_lines(PROMPTS / f"{each}.jsonl", [])
    shown = ["3?", "Human: 7?\n\nAssistant: 7\n\nHuman: And?"]
    prompts = [Prompt(id=text, question=text, **empty) for text in shown]
    lines.write_lines(PROMPTS / f"{split}.jsonl", prompts)
    train, heldout, _, metrics = read_raw("label_people", list_raw_pairs(20))
    prompts = {row.prompt for row in [*train, *heldout]}
    assert prompts == {f"{i}?" for i in range(20)} - {"3?", "7?"}
    assert metrics["of_dev_and_test"] == 2


def test_a_soft_label_is_of_the_better_answer():
    content = [row | {"label": 0.25} for row in list_raw_pairs(20)]
    train, heldout, *_ = read_raw("label_people", content, columns=NAMES | {"probability": "label"})
    assert {(row.chosen, row.probability) for row in [*train, *heldout]} == {(" no", 0.75)}
    train, heldout, _, metrics = read_raw("label_people", VOTES)
    votes = {(row.rejected, row.probability) for row in [*train, *heldout]}
    assert votes == {(" no", 0.666666666667)}
    assert metrics["train"]["mean_probability"] == pytest.approx(2 / 3, abs=1e-6)


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
    assert sum(map(len, read("label_people", "hub/owner/mine", split="test")[:2])) == 10
    with pytest.raises(ValueError, match="validation"):
        read("label_people", "hub/owner/mine", split="validation")
    with pytest.raises(ValueError, match="owner/other"):
        read("label_people", "hub/owner/other")
    for name, content in splits.items():
        stage_inputs.write_raw(f"parts/{name}.jsonl", content)
    for split, count in ((None, 20), ("test", 10)):
        assert sum(map(len, read("label_people", "raw/parts", split=split)[:2])) == count


def test_step_labels_of_the_hub_are_read(tmp_path, monkeypatch):
    cache_dataset(tmp_path, "steps", {"gsm8k": [RAW_SOLUTION]}, monkeypatch)
    _, (row,), bad, _ = read("steps_people", "hub/owner/steps")
    assert (row.id, row.steps, bad) == ("r", ["2 + 2 = 4\n", "#### 4"], [])


@pytest.mark.slow
@pytest.mark.skipif(not HH.is_file(), reason="HH-RLHF is not at ../shared/data/hh_rlhf_harmless")
def test_hh_rlhf_harmless_comes_in_whole():
    """2,312 rows: 5 differ before the last turn, 4 have an empty answer; the rest are pairs."""
    (DATA / "raw/hh").symlink_to(HH.parent)
    train, heldout, _, metrics = read(
        "label_people", "raw/hh/test.jsonl.gz", columns=NAMES | {"prompt": None},
        heldout_share=0.2, max_tokens=100_000, max_bad_share=0.005,
    )  # fmt: skip
    assert metrics["rows"] == 2312
    assert metrics["quarantined"] == {"empty answer": 4, "no common prompt": 5}
    assert len(train) + len(heldout) == 2303
    sides = [{row.prompt.split("\n\nAssistant:")[0] for row in side} for side in (train, heldout)]
    assert sides[0] & sides[1] == set()
    raw = [json.loads(line) for line in gzip.decompress(HH.read_bytes()).splitlines()]
    whole = {(row["chosen"].strip(), row["rejected"].strip()) for row in raw}
    together = [(row.prompt + row.chosen, row.prompt + row.rejected) for row in [*train, *heldout]]
    assert sum((a.strip(), b.strip()) in whole for a, b in together) > 2000
    assert all(row.chosen_ids[-1] == row.rejected_ids[-1] for row in train)


@pytest.fixture
def words():
    return model_tokenizer.load_tokenizer(rows.locate_policy(rows.BASE, 0))


def join(ids):
    return [item for step in ids for item in step]


def test_a_solution_is_tokenised_step_by_step_and_cut_where_scoring_cuts_its_tokens(words):
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
    decode = model_tokenizer.make_decode(words)
    assert split_steps(join(cut.step_ids), decode, "\n") == cut.step_ids
    assert metrics["cut_at_separator"] == {"solutions": 1, "steps": 3 - 1}
    assert metrics["labels"] == {"steps": 6, "labelled": 4, "wrong": 2, "mean": 0.5}
    assert bad == []


def test_a_problem_is_on_one_side_whoever_else_is_in_the_file():
    sides = {}
    for count in (40, 30):
        several = [RAW_SOLUTION | {"id": f"r{n}-{i}", "problem": f"{n}?"}
                   for n in range(count) for i in "ab"]  # fmt: skip
        train, heldout, *_ = read_raw("steps_people", several, heldout_share=0.25)
        sides[count] = {row.prompt for row in train}, {row.prompt for row in heldout}
        assert not sides[count][0] & sides[count][1]
        assert 0 < len(sides[count][1]) < count / 2
    assert all(few <= many for few, many in zip(sides[30], sides[40], strict=True))


@pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared/data")
def test_published_step_labels_come_in_whole(words):
    (DATA / "raw/shared").symlink_to(SHARED)
    train, heldout, bad, metrics = read(
        "steps_people", "raw/shared/processbench/gsm8k.json.gz", max_tokens=100_000,
        max_bad_share=0.0,
    )  # fmt: skip
    assert (train, bad) == ([], [])
    counts = metrics["solutions"]
    assert (len(heldout), counts["erroneous"], counts["without_error"]) == (400, 207, 193)
    assert metrics["cut_at_separator"] == {"solutions": 77, "steps": 272}
    decode = model_tokenizer.make_decode(words)
    for row in heldout[::8]:
        assert split_steps(join(row.step_ids), decode, "\n") == row.step_ids
