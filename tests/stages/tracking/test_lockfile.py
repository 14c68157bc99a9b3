"""What is read from dvc.lock, and which run records belong to it."""

import json
import logging
from pathlib import Path

import pytest

from stages.tracking import lockfile


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


def test_a_second_execution_changes_the_lock_hash_but_not_the_result_hash(entered):
    before = {entry.stage: entry for entry in lockfile.read_entries()}["train@sft"]
    entered.repro("--force", "--single-item", "train@sft")
    after = {entry.stage: entry for entry in lockfile.read_entries()}["train@sft"]
    assert after.input_key == before.input_key
    assert after.result_hash == before.result_hash
    assert after.lock_hash != before.lock_hash
    assert lockfile.hash_entries([before]) != lockfile.hash_entries([after])


def test_a_record_of_other_inputs_or_none_is_left_out_with_a_warning(entered, caplog):
    entry = lockfile.read_entries()[1]
    assert lockfile.read_record(entry)["stage"] == "train@sft"
    path = Path("data/runs/train/sft/run.json")
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
    entry = lockfile._parse_entry("train@sft", {"cmd": "x", "params": parameters})
    assert entry.params == {"a.b.c": [1, 2], "e": None, "d.f": 3}
