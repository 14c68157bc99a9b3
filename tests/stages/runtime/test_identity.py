"""The input key against DVC itself; execution ids over kills, failures and reverts."""

import json
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml

from stages.runtime import identity

pytestmark = pytest.mark.slow


def record(repo, stage="train@sft"):
    return repo.record(stage)


def test_input_key_is_the_name_of_dvc_run_cache_folder(toy_repo):
    toy_repo.repro("compare")
    names = {path.parent.name for path in toy_repo.path.glob(".dvc/cache/runs/*/*/*")}
    stages = ["train@sft", "train@dpo", "sample@dpo", "evaluate@sft", "evaluate@dpo", "compare"]
    assert {record(toy_repo, stage)["input_key"] for stage in stages} == names
    locked = yaml.safe_load((toy_repo.path / "dvc.lock").read_text())["stages"]
    # PyYAML reads 1e-05 as text; the number is what params.yaml holds.
    for entry in locked.values():
        for section in entry["params"].values():
            if "rate" in section:
                section["rate"] = 1e-5
    assert {identity.lock_key(entry) for entry in locked.values()} == names


def test_the_input_key_is_dvcs_own_where_a_dependency_is_inside_anothers_output(toy_repo):
    path = toy_repo.path / "dvc.yaml"
    text = path.read_text()
    assert text.count('deps: [work.py, "data/policies/${item}/model"]') == 2
    path.write_text(
        text.replace(
            'deps: [work.py, "data/policies/${item}/model"]', "deps: [work.py, data/both/dpo]", 1
        )
        + """
  both:
    cmd: mkdir -p data/both && cp -r data/policies/dpo/model data/both/dpo
    deps: [data/policies/dpo/model]
    outs: [data/both]
"""
    )
    toy_repo.repro("sample")
    names = {path.parent.name for path in toy_repo.path.glob(".dvc/cache/runs/*/*/*")}
    assert record(toy_repo, "sample@dpo")["input_key"] in names


@pytest.mark.parametrize("cut", ["md5:", "cmd"])
def test_dvc_lock_is_read_again_while_another_dvc_writes_it(toy_repo, cut, monkeypatch):
    toy_repo.repro("train@sft")
    monkeypatch.chdir(toy_repo.path)
    lock = toy_repo.path / "dvc.lock"
    whole = lock.read_text()
    expected = identity.input_key(identity.dvc_stage("train@sft"))
    lock.write_text(whole[: whole.rindex(cut) + 2])
    written = threading.Timer(1.0, lock.write_text, [whole])
    written.start()
    execution = identity.Execution(
        execution_id="", stage="train@sft", input_key=str(expected), attempt=1
    )
    assert not identity.recorded(execution)
    assert identity.input_key(identity.dvc_stage("train@sft")) == expected
    written.join()
    assert identity.recorded(execution)


def test_a_broken_dvc_yaml_is_not_waited_for(toy_repo, monkeypatch):
    monkeypatch.chdir(toy_repo.path)
    (toy_repo.path / "dvc.yaml").write_text("stages: [")
    begun = time.monotonic()
    with pytest.raises(ValueError, match=r"dvc\.yaml"):
        identity.input_key(identity.dvc_stage("train@sft"))
    assert time.monotonic() - begun < identity.WRITING_SECONDS


def test_a_row_edited_since_dvc_started_is_refused(toy_repo, monkeypatch):
    monkeypatch.chdir(toy_repo.path)
    monkeypatch.setenv("DVC_STAGE", "train@sft")
    monkeypatch.setattr(sys, "argv", ["work.py", "train@sft"])
    assert identity.dvc_stage("train@sft").addressing == "train@sft"
    monkeypatch.setattr(sys, "argv", ["work.py"])  # a stage without words
    assert identity.dvc_stage("train@sft").addressing == "train@sft"
    for words in ("train@dpo", "train@sf"):
        monkeypatch.setattr(sys, "argv", ["work.py", words])
        with pytest.raises(ValueError, match="train@sft was edited since dvc started"):
            identity.dvc_stage("train@sft")


@pytest.mark.parametrize("left", [None, "", '{"stage": "train@dpo"}'])
def test_what_a_killed_sweep_left_is_swept(left, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".pipe/train@dpo-0123456789abcdef"
    folder.mkdir(parents=True)
    (folder / identity.ENDED).touch()
    if left is not None:
        (folder / identity.EXECUTION).write_text(left)
    with identity.claim("train@sft") as (execution, *_):
        assert execution.attempt == 1
    assert not folder.exists()


def test_a_reverted_parameter_restores_the_journals_of_the_same_execution(toy_repo):
    toy_repo.repro("train@sft")
    first = record(toy_repo)
    toy_repo.set_params(rate="0.5")
    toy_repo.repro("train@sft")
    assert record(toy_repo)["execution_id"] != first["execution_id"]
    toy_repo.set_params()
    assert "is cached" in toy_repo.repro("train@sft")
    key = json.loads((toy_repo.path / "data/journals/train/sft/key.json").read_text())
    assert key == {"input_key": first["input_key"], "stage": "train@sft"}


def wait_for(path: Path) -> str:
    for _ in range(2400):
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.05)
    raise AssertionError(f"{path} never appeared")


def test_a_killed_stage_keeps_its_execution_id_and_its_journal_has_every_point_once(toy_repo):
    process = toy_repo.start("python", "work.py", "train@sft", TOY_STOP="hang")
    wait_for(toy_repo.path / "stopped")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (folder,) = toy_repo.path.glob(".pipe/train@sft-*")
    left = json.loads((folder / "exec.json").read_text())
    assert len((folder / "seed-0/journal.jsonl").read_text().splitlines()) == 4
    toy_repo.repro("train@sft")
    made = record(toy_repo)
    assert (made["execution_id"], made["attempt"]) == (left["execution_id"], 2)
    record_of_seed = toy_repo.find_record("train@sft") / "journal-seed-0.jsonl"
    lines = record_of_seed.read_text().splitlines()
    assert [json.loads(line)["index"] for line in lines] == [0, 1, 2, 3, 4, 5]
    # It stays until the next stage finds the outputs in dvc.lock: dvc may be killed before.
    assert (folder / "ended").exists()
    toy_repo.repro("train@dpo")
    assert not folder.exists()


def test_a_killed_stage_is_not_taken_over_by_other_inputs(toy_repo):
    process = toy_repo.start("python", "work.py", "train@sft", TOY_STOP="hang")
    wait_for(toy_repo.path / "stopped")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (folder,) = toy_repo.path.glob(".pipe/train@sft-*")
    left = json.loads((folder / "exec.json").read_text())
    toy_repo.set_params(rate="0.5")
    toy_repo.repro("train@sft")
    made = record(toy_repo)
    assert made["attempt"] == 1
    assert made["execution_id"] != left["execution_id"]
    assert folder.exists()


def test_a_failed_stage_leaves_its_reason(toy_repo):
    output = toy_repo.run("python", "work.py", "train@sft", code=1, TOY_STOP="fail")
    assert "RuntimeError: as asked" in output
    (folder,) = toy_repo.path.glob(".pipe/train@sft-*")
    assert json.loads((folder / "failed.json").read_text())["error"] == "RuntimeError: as asked"
    assert not (toy_repo.path / "data/policies/sft").exists()


def test_the_same_stage_cannot_run_twice_at_once(toy_repo):
    process = toy_repo.start("python", "work.py", "train@sft", TOY_STOP="hang")
    wait_for(toy_repo.path / "stopped")
    assert "is running already" in toy_repo.run("python", "work.py", "train@sft", code=1)
    process.kill()
    process.communicate()


def test_a_missing_input_says_which_command_makes_it(toy_repo):
    output = toy_repo.run("python", "work.py", "train@dpo", code=1)
    assert "`dvc repro train@dpo` makes its inputs" in output


def test_outside_a_pipeline_nothing_is_ever_taken_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RuntimeError), identity.claim("toy") as (first, *_):
        raise RuntimeError
    with identity.claim("toy") as (second, *_):
        assert second.attempt == 1
        assert second.execution_id != first.execution_id
