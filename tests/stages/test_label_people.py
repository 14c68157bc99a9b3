import gzip
import json
from pathlib import Path

import pytest
import stage_inputs
from cached_hub import cache_dataset

from stages import label_people, rows
from stages.models.model_tokenizer import train_tokenizer
from stages.records import lines
from stages.records.preferences import Preference, UnpairedExample, read_pairs
from stages.records.problems import BadRow, Prompt
from stages.rows import BASE, DATA

HH = Path(__file__).parents[3] / "shared/data/hh_rlhf_harmless/test.jsonl.gz"
PRESET = {
    "columns": {"prompt": "prompt", "chosen": "chosen", "rejected": "rejected"},
    "licence": "MIT",
    "heldout_share": 0.25,
    "max_tokens": 40,
    "max_bad_share": 0.5,
    "max_long_share": 0.5,
}
OUTPUT = DATA / "pairs/mine"
FILE = DATA / "raw/mine.jsonl"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = train_tokenizer(["Human: how do I do this? Assistant: you can, I think."], 700)
    words.save_pretrained(rows.locate_policy(BASE, 0))
    FILE.parent.mkdir()
    for split in ("dev", "test"):
        lines.write_lines(rows.PROMPTS / f"{split}.jsonl", [])
    set_preset()


def set_preset(**changes: object) -> None:
    preset = PRESET | changes
    preset["columns"] = {"probability": None, **preset["columns"]}
    stage_inputs.configure(preset)


def label(file: str) -> None:
    words = ("mine", "--by", "people", "--preset", "mine", "--from", BASE, "--on", file)
    label_people.main("label_people", *words)


def run(*rows: object) -> tuple[list[Preference], list[Preference], list[BadRow], dict]:
    text = "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows)
    FILE.write_text(text, encoding="utf-8")
    label("raw/mine.jsonl")
    return read()


def read() -> tuple[list[Preference], list[Preference], list[BadRow], dict]:
    train, heldout = (list(lines.read_lines(OUTPUT / f"{side}.jsonl", Preference))
                      for side in ("train", "heldout"))  # fmt: skip
    quarantine = list(lines.read_lines(OUTPUT / "quarantine.jsonl", BadRow))
    return train, heldout, quarantine, stage_inputs.metrics(OUTPUT)


def test_what_policies_are_tested_on_is_left_out_and_counted():
    prompt = {"task": "chat", "prompt": "", "prompt_ids": [], "answer": None}
    shown = {"dev": "3?", "test": "Human: 7?\n\nAssistant: 7\n\nHuman: And?"}
    for split, question in shown.items():
        lines.write_lines(
            rows.PROMPTS / f"{split}.jsonl", [Prompt(id=split, question=question, **prompt)]
        )
    train, heldout, _, metrics = run(*pairs(20))
    assert {row.prompt for row in [*train, *heldout]} == {f"{i}?" for i in range(20)} - {"3?", "7?"}
    assert metrics["of_dev_and_test"] == 2


def test_the_log_counts_the_pairs_and_what_is_left_out(capsys):
    tie = {"prompt": "a?", "chosen": "b", "rejected": "c", "score_chosen": 5, "score_rejected": 5}
    train, heldout, _, _ = run(*pairs(20), tie)
    counts = f"  {len(train)} pairs to learn from, {len(heldout)} held out; left out: 1 tie\n"
    assert counts in capsys.readouterr().out
    assert len(train) + len(heldout) == 20
    question = {"question": "3?", "task": "chat", "prompt": "", "prompt_ids": [], "answer": None}
    lines.write_lines(rows.PROMPTS / "dev.jsonl", [Prompt(id="dev", **question)])
    run(*pairs(20), tie)
    assert "left out: 1 tie, 1 of dev and test prompts\n" in capsys.readouterr().out


def pairs(count: int) -> list[dict[str, str]]:
    return [{"prompt": f"{i}?", "chosen": f" {i}", "rejected": " no"} for i in range(count)]


def test_every_row_is_a_pair_or_in_quarantine_with_its_line_and_reason():
    bad = [
        "{oops",
        {"prompt": "", "chosen": "a", "rejected": "b"},
        {"prompt": "p", "chosen": "a", "rejected": ""},
        {"prompt": "p", "chosen": "a", "rejected": " a"},
        {"prompt": "p", "chosen": "a <|end|> b", "rejected": "b"},
        {"prompt": "p", "chosen": "x" * 99, "rejected": "b"},
        {"chosen": "a", "rejected": "b"},
    ]
    train, heldout, quarantine, metrics = run(*pairs(20), *bad)
    assert len(train) + len(heldout) == 20
    assert [row.line for row in quarantine] == list(range(21, 28))
    assert [row.reason.partition(":")[0] for row in quarantine] == [
        "not JSON",
        "no prompt",
        "empty answer",
        "equal answers",
        "special token",
        "over-long pair",
        "no prompt",
    ]
    assert metrics["rows"] == 27
    assert sum(metrics["quarantined"].values()) == 7
    assert metrics["train"]["pairs"] == len(train)
    assert metrics["generated_tokens"] == metrics["trained_tokens"] == 0
    assert {row.source for row in train} == {"human"}


def test_a_file_of_which_too_much_is_bad_or_too_long_is_refused():
    set_preset(max_bad_share=0.0)
    with pytest.raises(ValueError, match=r"raise `mine\.max_bad_share`"):
        run(*pairs(20), "{oops")
    set_preset(max_tokens=4, max_long_share=0.9)
    with pytest.raises(ValueError, match=r"20 over-long.*mine\.max_long_share"):
        run(*pairs(20))


def test_the_bad_share_is_one_of_rows_however_many_pairs_a_row_has():
    columns = dict.fromkeys(("chosen", "rejected")) | {"prompt": "prompt", "answers": "ranked"}
    ranked = [{"prompt": f"{i}?", "ranked": [f"{i}", "no", "nein", "non"]} for i in range(9)]
    set_preset(columns=columns, max_bad_share=0.099)
    with pytest.raises(ValueError, match=r"1 of 10 rows cannot be used .*mine\.max_bad_share"):
        run(*ranked, "{oops")
    ended = {"prompt": "9?", "ranked": ["9", "no", "n <|end|> o"]}  # in two pairs that are bad
    set_preset(columns=columns, max_bad_share=0.1)
    train, heldout, quarantine, _ = run(*ranked, ended)
    assert len(train) + len(heldout) == 9 * 6 + 1
    assert [row.line for row in quarantine] == [10, 10]
    long = {"prompt": "9?", "ranked": ["9", "n", "m", "k", "l", "x" * 99]}
    set_preset(columns=columns, max_long_share=0.07)  # 5 of 9 * 6 + 15 pairs
    with pytest.raises(ValueError, match=r"5 of 69 rows .*mine\.max_long_share"):
        run(*ranked, long)


def test_a_soft_label_goes_to_the_better_answer():
    set_preset(columns=PRESET["columns"] | {"probability": "label"})
    rows = [row | {"label": 0.25} for row in pairs(20)]
    train, *_ = run(*rows)
    assert {(row.chosen, row.probability) for row in train} == {(" no", 0.75)}


def test_a_second_run_writes_the_same_bytes():
    files = ("train.jsonl", "heldout.jsonl", "quarantine.jsonl", "metrics.json")
    written = []
    for _ in range(2):
        run(*pairs(30))
        written.append([(OUTPUT / name).read_bytes() for name in files])
    assert written[0] == written[1]


@pytest.mark.skipif(not HH.is_file(), reason="HH-RLHF is not at ../shared/data/hh_rlhf_harmless")
def test_hh_rlhf_harmless_comes_in_whole():
    """2,312 rows: 5 differ before the last turn, 4 have an empty answer; the rest are pairs."""
    columns = PRESET["columns"] | {"prompt": None}
    set_preset(columns=columns, heldout_share=0.2, max_tokens=100_000,
                 max_bad_share=0.005)  # fmt: skip
    (DATA / "raw/hh").symlink_to(HH.parent)
    label("raw/hh/test.jsonl.gz")
    train, heldout, _, metrics = read()
    assert metrics["rows"] == 2312
    assert metrics["quarantined"] == {"empty answer": 4, "no common prompt": 5}
    assert len(train) + len(heldout) == 2303
    assert {row.id for row in train} & {row.id for row in heldout} == set()
    openings = [
        {row.prompt.split("\n\nAssistant:")[0] for row in rows} for rows in (train, heldout)
    ]
    assert openings[0] & openings[1] == set()
    raw = [json.loads(line) for line in gzip.decompress(HH.read_bytes()).splitlines()]
    whole = {(row["chosen"].strip(), row["rejected"].strip()) for row in raw}
    together = [(row.prompt + row.chosen, row.prompt + row.rejected) for row in [*train, *heldout]]
    assert sum((a.strip(), b.strip()) in whole for a, b in together) > 2000
    assert all(row.chosen_ids[-1] == row.rejected_ids[-1] for row in train)


def test_completions_that_people_labelled_are_for_kto_alone():
    rows = [{"prompt": f"{i}?", "completion": f" {i}", "label": i % 3 > 0} for i in range(30)]
    FILE.write_text("".join(json.dumps(row) + "\n" for row in rows))
    stage_inputs.configure(
        {key: value for key, value in PRESET.items() if key != "columns"} | {"columns": {}}
    )
    label("raw/mine.jsonl")
    sides = [list(lines.read_lines(OUTPUT / f"{side}_labelled.jsonl", UnpairedExample))
             for side in ("train", "heldout")]  # fmt: skip
    assert sum(map(len, sides)) == 30
    assert sum(row.desirable for side in sides for row in side) == 20
    metrics = stage_inputs.metrics(OUTPUT)
    assert metrics["train"]["completions"] == len(sides[0])
    with pytest.raises(ValueError, match="preset kto learns from these"):
        read_pairs(OUTPUT, "train")


@pytest.mark.parametrize("key", ["prompt", "chosen", "rejected"])
def test_a_token_without_an_embedding_is_refused(key):
    pairs = [{"prompt": f"{i}?", "chosen": f" {i}", "rejected": " no"} for i in range(9)]
    pairs = [pair | {key: pair[key] + " xyzzy"} for pair in pairs]
    FILE.write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")
    preset = PRESET | {"columns": {"probability": None, **PRESET["columns"]}}
    stage_inputs.configure(preset, model=stage_inputs.add_token_without_embedding("xyzzy"))
    with pytest.raises(ValueError, match="'xyzzy'"):
        label("raw/mine.jsonl")


def test_pairs_of_the_hub_are_read_as_those_of_a_file(tmp_path, monkeypatch):
    cache_dataset(tmp_path, "mine", {"train": pairs(20), "test": pairs(30)[20:]}, monkeypatch)
    label("hub/owner/mine")
    of_hub = read()
    assert sum(map(len, of_hub[:2])) == 20
    assert [side[:2] for side in (run(*pairs(20)), of_hub)] == [of_hub[:2]] * 2
    set_preset(split="test")
    label("hub/owner/mine")
    assert sum(map(len, read()[:2])) == 10
    set_preset(split="validation")
    with pytest.raises(ValueError, match="no split 'validation'; it has train, test"):
        label("hub/owner/mine")
    with pytest.raises(ValueError, match="cannot read the data set 'owner/other'"):
        label("hub/owner/other")


def test_the_split_of_a_folder_is_the_one_that_the_preset_names():
    folder = DATA / "raw/parts"
    folder.mkdir()
    for name, count in (("train", 30), ("test", 20)):
        text = "".join(json.dumps(pair) + "\n" for pair in pairs(count))
        (folder / f"{name}.jsonl").write_text(text)
    for split, count in ((None, 30), ("test", 20)):
        set_preset(split=split)
        label("raw/parts")
        assert sum(map(len, read()[:2])) == count
    set_preset(revision="main")
    with pytest.raises(ValueError, match="revision: 'main': expected null"):
        label("raw/parts")


def test_rows_are_counted_and_not_their_pairs():
    set_preset(columns={"prompt": "prompt", "chosen": None, "rejected": None, "answers": "all"})
    ranked = [{"prompt": f"{i}?", "all": [" a", " b", " c"]} for i in range(20)]
    train, heldout, quarantine, metrics = run(*ranked, ranked[0], "{oops")
    assert len(train) + len(heldout) == 60
    assert metrics["rows"] == 22
    assert metrics["quarantined"] == {"not JSON": 1, "repeated": 1}
    assert [row.line for row in quarantine] == [21, 22]


def test_a_file_of_lone_ratings_is_refused_with_the_reason():
    set_preset(columns=dict.fromkeys(("chosen", "rejected")) | {
        "prompt": "prompt", "answer": "text", "score": "score"})  # fmt: skip
    with pytest.raises(ValueError, match=r"of 9 all are left out \(9 alone\). .*alone: "):
        run(*({"prompt": f"{i}?", "text": "a", "score": i} for i in range(9)))


def test_people_who_disagree_are_a_soft_label_and_spoil_nothing():
    set_preset(max_bad_share=0.0)
    votes = [pairs(20)[i // 3] | {"judge": i} for i in range(60)]
    for vote in votes[::3]:
        vote["chosen"], vote["rejected"] = vote["rejected"], vote["chosen"]
    train, heldout, _, metrics = run(*votes)
    assert len(train) + len(heldout) == 20
    assert {(row.rejected, row.probability) for row in train} == {(" no", 0.666666666667)}
    assert metrics["quarantined"] == {"merged": 40}
    assert metrics["train"]["mean_probability"] == 0.666667
