"""What is read from dvc.lock, and which run records belong to it."""

import json
import logging
import shutil
from pathlib import Path

import pytest

from stages.tracking import lockfile

pytestmark = pytest.mark.slow


@pytest.fixture
def entered(toy_repo, monkeypatch):
    toy_repo.repro("train@dpo")
    monkeypatch.chdir(toy_repo.path)
    return toy_repo


def test_only_stages_that_were_made_and_still_exist_are_read(entered):
    assert [entry.stage for entry in lockfile.read_entries()] == ["train@dpo", "train@sft"]
    text = Path("dvc.yaml").read_text().replace("dpo: {from", "other: {from")
    Path("dvc.yaml").write_text(text)
    assert [entry.stage for entry in lockfile.read_entries()] == ["train@sft"]
    Path("dvc.lock").unlink()
    assert lockfile.read_entries() == []


def test_a_study_that_was_run_has_its_own_name_kind_and_journal(entered):
    folder = "data/studies/rescore/dpo"
    command = f"mkdir -p {folder}/journal && echo 1 > {folder}/journal/key.json"
    stage = {"cmd": command, "wdir": "..", "desc": "again", "outs": [f"{folder}/journal"]}
    assert lockfile.read_entries(lockfile.STUDIES) == []
    Path("studies").mkdir()
    study = {"rescore": {"foreach": ["dpo"], "do": stage}}
    Path("studies/dvc.yaml").write_text(json.dumps({"stages": study}))
    entered.repro("studies/dvc.yaml")
    (entry,) = lockfile.read_entries(lockfile.STUDIES)
    assert entry.stage == "studies/dvc.yaml:rescore@dpo"
    assert (entry.kind, entry.description) == ("rescore", "again")
    assert entry.journals == Path(folder) / "journal"
    assert {other.kind for other in lockfile.read_entries()} == {"train"}


def test_a_second_execution_leaves_dvc_lock_as_it_is_and_a_second_record(entered):
    lock = Path("dvc.lock").read_bytes()
    (entry,) = [entry for entry in lockfile.read_entries() if entry.stage == "train@sft"]
    first = entry.record
    entered.repro("--force", "--single-item", "train@sft")
    assert Path("dvc.lock").read_bytes() == lock
    assert entry.record != first
    assert sorted(entry.record.parent.iterdir()) == sorted([first, entry.record])
    lines = Path("data/journals/train/sft/journal-seed-0.jsonl").read_text().splitlines()
    timed = (entry.record / "journal-seed-0.jsonl").read_text().splitlines()
    assert all(json.loads(line)["metrics"].keys() == {"loss/total"} for line in lines)
    assert [json.loads(line)["metrics"] for line in timed] == [
        json.loads(line)["metrics"] | {"time/step": 0.5} for line in lines
    ]


def test_without_its_record_a_result_was_computed_elsewhere(entered):
    entry = lockfile.read_entries()[1]
    assert lockfile.read_record(entry)["seconds"] >= 0
    shutil.rmtree("data/runs")
    record = lockfile.read_record(entry)
    assert (record["seconds"], record["host"]) == (None, None)
    assert record["input_key"] == entry.input_key


def test_journals_of_other_inputs_or_none_are_left_out_with_a_warning(entered, caplog):
    entry = lockfile.read_entries()[1]
    assert lockfile.read_record(entry)["stage"] == "train@sft"
    path = Path("data/journals/train/sft/key.json")
    content = json.loads(path.read_text())
    path.unlink()
    with caplog.at_level(logging.WARNING):
        assert lockfile.read_record(entry) is None
        path.write_text(json.dumps(content | {"input_key": "0"}))
        assert lockfile.read_record(entry) is None
    assert "dvc checkout" in caplog.records[0].message
    assert "of other inputs" in caplog.records[1].message


def test_nested_parameters_become_dotted_names():
    parameters = {"params.yaml": {"a.b": {"c": [1, 2]}, "e": None}, "presets.yaml": {"d": {"f": 3}}}
    entry = lockfile._parse_entry("train@sft", "", {"cmd": "x", "params": parameters})
    assert entry.params == {"a.b.c": [1, 2], "e": None, "d.f": 3}


def test_the_last_record_is_the_one_that_ended_last_however_it_came_here(entered):
    (entry,) = [entry for entry in lockfile.read_entries() if entry.stage == "train@sft"]
    first = entry.record
    second = first.with_name(first.name[:-8] + "00000000")
    shutil.copytree(first, second)
    content = json.loads((second / "run.json").read_text())
    content["ended"] = content["ended"].replace("20", "19", 1)
    (second / "run.json").write_text(json.dumps(content))  # fetched later, executed before
    assert entry.record == first
