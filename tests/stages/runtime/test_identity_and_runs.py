"""Who a stage run is, what it records, and that it changes no output: with DVC as it is."""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import pytest
import yaml
from dvc.stage.serialize import to_single_stage_lockfile
from ruamel.yaml import YAML
from seed_runs import for_each_seed
from terminals import run_on_terminal
from toy_repo import GIT, wait_until

from stages.runtime import clean, identity, intact, preflight, runs
from stages.runtime.identity import Execution

KEY = "5" * 64
STAGE = "train@sft"
TRACED = "data/code/train.json"
ROWS = YAML(typ="safe").load(Path(__file__).with_name("cases.yaml"))


def make_execution(**changes):
    fields = {"execution_id": "e", "stage": STAGE, "input_key": KEY, "attempt": 1}
    return Execution(**fields | changes)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The scratch of an execution, in a working folder that is no repository."""
    monkeypatch.chdir(tmp_path)
    path = identity.PIPE / f"{STAGE}-{KEY[:16]}"
    path.mkdir(parents=True)
    (path / identity.EXECUTION).write_text(json.dumps(asdict(make_execution())))
    return path


@pytest.fixture(scope="module")
def repo(shared_toy_repo):
    """A repository of which nothing has run."""
    return shared_toy_repo


def test_dvc_lock_is_read_again_while_another_dvc_writes_it(repo, monkeypatch):
    monkeypatch.chdir(repo.path)
    monkeypatch.setattr(sys, "argv", ["work.py", STAGE])
    loaded = identity.dvc_stage(STAGE)
    key = identity.input_key(loaded)
    entry = to_single_stage_lockfile(loaded)
    outs = [dict(out) | {"hash": "md5", "md5": "1" * 32} for out in entry["outs"]]
    whole = json.dumps({"schema": "2.0", "stages": {STAGE: entry | {"outs": outs}}})
    lock, waits = Path("dvc.lock"), []
    monkeypatch.setattr(identity.time, "sleep", lambda _: waits.append(lock.write_text(whole)))
    for number, cut in enumerate(('"md5"', '"cmd"'), start=1):
        lock.write_text(whole[: whole.rindex(cut) + 2])
        assert not identity.recorded(make_execution(input_key=key))
        assert identity.input_key(identity.dvc_stage(STAGE)) == key
        assert len(waits) == number
        assert identity.recorded(make_execution(input_key=key))
        assert not identity.recorded(make_execution(input_key=KEY))
    lock.unlink()


@pytest.mark.parametrize("row", ROWS["words"])
def test_words_of_another_command_are_no_run_of_the_stage(row, repo, monkeypatch):
    """Under dvc they are a row that was edited since; by hand they are another run."""
    monkeypatch.chdir(repo.path)
    monkeypatch.setattr(sys, "argv", row["words"])
    if row["by_dvc"]:
        monkeypatch.setenv("DVC_STAGE", STAGE)
    if row["is_stage"] is None:
        with pytest.raises(ValueError, match="was edited"):
            identity.dvc_stage(STAGE)
    else:
        loaded = identity.dvc_stage(STAGE)
        assert (loaded is not None and loaded.addressing == STAGE) == row["is_stage"]


def test_parameters_edited_meanwhile_give_no_result_and_those_of_others_do(repo, monkeypatch):
    monkeypatch.chdir(repo.path)
    monkeypatch.setattr(sys, "argv", ["work.py", STAGE])
    records = Path("data/runs/train/sft")
    with runs.start(STAGE) as run:
        repo.set_params(rate="0.5")
        with pytest.raises(ValueError, match=STAGE):  # before it learns from others than its own
            for_each_seed(lambda run: None, [0], run)
        repo.set_params()
        repo.set_params(goal=0.75)  # which evaluate reads
        for_each_seed(lambda run: None, [0], run)
    assert len(list(records.iterdir())) == 1
    with pytest.raises(ValueError, match=STAGE), runs.start(STAGE):
        repo.set_params(rate="0.5")
    assert len(list(records.iterdir())) == 1
    repo.set_params()
    (scratch,) = Path(".pipe").glob(f"{STAGE}-*")
    assert STAGE in (scratch / "failed.json").read_text()


def test_an_execution_is_taken_over_by_its_own_inputs_alone(folder, monkeypatch):
    def claim():
        with identity.claim("toy") as (execution, path, _):
            return execution, path

    key = ["0" * 32]
    monkeypatch.setattr(identity.uuid, "uuid4", lambda: type("Id", (), {"hex": key[0]}))
    first, path = claim()
    again, same = claim()
    assert (again.execution_id, again.attempt, same) == (first.execution_id, 2, path)
    # Another key that begins alike: the folder is the same, the execution is not.
    content = asdict(again) | {"input_key": key[0] + "f" * 32}
    (path / identity.EXECUTION).write_text(json.dumps(content))
    assert claim()[0].attempt == 1
    key[0] = "1" * 32
    assert claim()[0].attempt == 1, "outside of a pipeline nothing is ever taken over"


@pytest.mark.parametrize("row", ROWS["scratch"])
def test_a_start_sweeps_what_is_recorded_replaced_or_broken(row, folder, monkeypatch):
    if row["ended"] is not None:
        (folder / identity.ENDED).write_text(row["ended"])
    if row["execution"] is None:
        (folder / identity.EXECUTION).unlink()
    elif row["execution"] != "whole":
        (folder / identity.EXECUTION).write_text(row["execution"])
    monkeypatch.setattr(identity, "recorded", lambda execution: row["recorded"])
    identity._sweep(row["starts"], "6" * 64)
    names = [path.name for path in identity.PIPE.iterdir()]
    assert names == ([folder.name] if row["stays"] else [])


def test_scratch_of_other_inputs_is_bounded_and_can_be_cleaned(repo, monkeypatch):
    monkeypatch.chdir(repo.path)
    monkeypatch.setattr(sys, "argv", ["work.py", STAGE])
    present = f"{STAGE}-{identity.find_present_key(STAGE)[:16]}"
    for number in "01234":
        record = identity.PIPE / f"{STAGE}-{number * 16}" / identity.EXECUTION
        record.parent.mkdir(parents=True)
        record.write_text(json.dumps(asdict(make_execution(input_key=number * 64))))
        os.utime(record, (int(number), int(number)))
    without_stage, without_inputs = (f"{name}-{'9' * 16}" for name in ("train@gone", "sample@dpo"))
    for name in (without_stage, without_inputs):
        (identity.PIPE / name).mkdir()

    def list_names():
        return {folder.name for folder in identity.find_folders()}

    bounded = {present, *(f"{STAGE}-{number * 16}" for number in "34")}
    with identity.claim(STAGE):
        assert list_names() == bounded | {without_stage, without_inputs}
        clean.main()
        assert list_names() == bounded | {without_inputs}, "of a stage that runs all folders stay"
    clean.main("--dry-run")
    assert list_names() == bounded | {without_inputs}
    clean.main()
    assert list_names() == {present, without_inputs}
    shutil.rmtree(identity.PIPE)


@pytest.mark.slow
def test_the_input_key_is_dvcs_run_cache_key(toy_repo):
    """Also where a dependency is inside another stage's output; a change back restores."""
    path = toy_repo.path / "dvc.yaml"
    inside = 'deps: [work.py, "data/policies/${item}/model"]'
    path.write_text(
        path.read_text().replace(inside, "deps: [work.py, data/both/dpo]", 1)
        + """
  both:
    cmd: mkdir -p data/both && cp -r data/policies/dpo/model data/both/dpo
    deps: [data/policies/dpo/model]
    outs: [data/both]
"""
    )
    toy_repo.repro("compare")
    names = {path.parent.name for path in toy_repo.path.glob(".dvc/cache/runs/*/*/*")}
    stages = ["train@sft", "train@dpo", "sample@dpo", "evaluate@sft", "evaluate@dpo", "compare"]
    assert {toy_repo.record(stage)["input_key"] for stage in stages} <= names
    locked = yaml.safe_load((toy_repo.path / "dvc.lock").read_text())["stages"]
    for entry in locked.values():
        for section in entry.get("params", {}).values():
            if "rate" in section:  # PyYAML reads 1e-05 as text
                section["rate"] = 1e-5
    assert {identity.lock_key(entry) for entry in locked.values()} == names
    first = toy_repo.record(STAGE)
    toy_repo.set_params(rate="0.5")
    toy_repo.repro(STAGE)
    assert toy_repo.record(STAGE)["execution_id"] != first["execution_id"]
    toy_repo.set_params()
    assert "is cached" in toy_repo.repro(STAGE)
    key = json.loads((toy_repo.path / "data/journals/train/sft/key.json").read_text())
    assert key == {"input_key": first["input_key"], "stage": STAGE}


@pytest.mark.slow
def test_a_killed_stage_is_gone_on_with_by_its_own_inputs_alone(toy_repo):
    by_hand = ["python", "work.py", STAGE]
    process = toy_repo.start(*by_hand, TOY_STOP="hang")
    stopped = toy_repo.path / "stopped"
    wait_until(lambda: stopped.exists() and stopped.read_text())
    assert "running already" in toy_repo.run(*by_hand, code=1)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (folder,) = toy_repo.path.glob(f".pipe/{STAGE}-*")
    killed = json.loads((folder / "exec.json").read_text())
    toy_repo.set_params(rate="0.5")
    toy_repo.repro(STAGE)
    other = toy_repo.record(STAGE)
    assert other["attempt"] == 1
    assert other["execution_id"] != killed["execution_id"]
    toy_repo.set_params()
    toy_repo.repro(STAGE)
    record = toy_repo.record(STAGE)
    assert (record["execution_id"], record["attempt"]) == (killed["execution_id"], 2)
    lines = (toy_repo.find_record(STAGE) / "journal-seed-0.jsonl").read_text().splitlines()
    assert [json.loads(line)["index"] for line in lines] == [0, 1, 2, 3, 4, 5]
    # It stays until the next stage finds the outputs in dvc.lock: dvc may be killed before.
    assert (folder / "ended").exists()
    assert "RuntimeError" in toy_repo.run("python", "work.py", "train@dpo", code=1, TOY_STOP="fail")
    assert not folder.exists()
    assert not (toy_repo.path / "data/policies/dpo").exists()
    shutil.rmtree(toy_repo.path / "data/policies")
    output = toy_repo.run("python", "work.py", "train@dpo", code=1)
    assert "`dvc repro train@dpo`" in output


def read_outputs(folder):
    """Every file below data/ but run records."""
    return {path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and "runs" not in path.relative_to(folder).parts}  # fmt: skip


@pytest.mark.slow
def test_the_runtime_cannot_change_an_output(toy_repo):
    """By hand, by dvc, on a terminal, with GPU slots, after a failure: the same bytes."""
    data, command = toy_repo.path / "data", ["python", "work.py", STAGE]
    toy_repo.run(*command)
    written = read_outputs(data)
    assert {"policies/sft/model/0/weights", "policies/sft/model/1/weights"} <= set(written)
    toy_repo.repro(STAGE)
    assert read_outputs(data) == written
    record = toy_repo.record(STAGE)
    assert datetime.fromisoformat(record["started"]).utcoffset().total_seconds() == 0
    assert record["started"] <= record["ended"]
    assert 10**7 < record["peak_memory_bytes"] < 10**10
    assert (len(record["git_commit"]), record["git_dirty"]) == (40, False)
    assert {"torch", "transformers", "dvc"} <= set(record["packages"])
    toy_repo.run(*command, CUDA_VISIBLE_DEVICES="3,1", MLFLOW_TRACKING_URI="http://127.0.0.1:9")
    assert read_outputs(data) == written
    assert (toy_repo.path / ".pipe/gpu/3-0.lock").exists()
    toy_repo.run(*command, code=1, TOY_STOP="fail")
    shown = run_on_terminal(command, toy_repo.path, 80, toy_repo.environment)
    assert "done in" in shown
    assert read_outputs(data) == written
    # Nor what DVC linked to its cache.
    toy_repo.repro(STAGE)
    toy_repo.run("dvc", "checkout", "--relink", STAGE)
    weights = data / "policies/sft/model/0/weights"
    assert weights.stat().st_nlink == 2
    before = weights.read_bytes()
    toy_repo.set_params(seed=1)
    toy_repo.run(*command)
    assert weights.read_bytes() != before
    toy_repo.set_params()
    toy_repo.run("dvc", "checkout", "--force", STAGE)
    assert weights.read_bytes() == before


def test_a_tree_is_dirty_by_its_code_and_not_by_the_lock_that_the_pipeline_writes(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert runs.git_state() == (None, None)
    for name in ("dvc.lock", "work.py"):
        Path(name).write_text("a")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "a"]):
        subprocess.run([*GIT, *words], check=True)
    for name, is_dirty in (("dvc.lock", False), ("work.py", True)):
        Path(name).write_text("b")
        commit, dirty = runs.git_state()
        assert (len(commit), dirty) == (40, is_dirty)


def test_a_start_draws_no_random_number_and_leaves_a_record_and_journals(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random.seed(0)
    before = random.getstate()
    with runs.start("toy") as run:
        run.log(0, {"loss": 1, "time/step": 1})
        assert random.getstate() == before
    assert random.getstate() == before
    (record,) = Path("data/runs/toy").iterdir()
    assert sorted(path.name for path in record.iterdir()) == ["journal.jsonl", "run.json"]
    journals = Path("data/journals/toy")
    assert sorted(path.name for path in journals.iterdir()) == ["journal.jsonl", "key.json"]
    assert json.loads((journals / "journal.jsonl").read_text())["metrics"] == {"loss": 1.0}
    assert list(Path(".pipe").glob("toy-*")) == []
    key = json.loads((record / "run.json").read_text())["input_key"]
    assert [path.name for path in runs.find_records("toy", key)] == [record.name]


def test_a_temporary_copy_leaves_its_record_in_the_checkout(tmp_path, monkeypatch):
    copy = tmp_path / "copy"
    copy.mkdir()
    monkeypatch.chdir(copy)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))  # as `dvc exp run --temp` sets it
    with runs.start("toy"):
        pass
    assert len(list((tmp_path / "data/runs/toy").iterdir())) == 1
    assert (copy / "data/journals/toy/key.json").exists()
    assert not (copy / "data/runs").exists()


def record_digests(record, *paths, **others):
    """Write a file of digests of `paths`; returns its name."""
    Path(record).parent.mkdir(parents=True, exist_ok=True)
    Path(record).write_text(json.dumps({str(path): digest(path) for path in paths} | others))
    return record


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@pytest.mark.parametrize("record", [TRACED, "data/own/brevity", "data/inputs.json"])
def test_what_was_edited_since_dvc_looked_at_it_is_refused(tmp_path, monkeypatch, record):
    monkeypatch.chdir(tmp_path)
    source = Path("train.py")
    source.write_text("rate = 1\n")
    record_digests(record, source, **{"model.path/config.json": "not a path"})
    source.touch()
    intact.check_sources([record, "data/other/train.jsonl"])
    for edit in (lambda: source.write_text("rate = 2\n"), source.unlink):
        edit()
        with pytest.raises(ValueError, match=r"train\.py"):
            intact.check_sources([record])


@pytest.mark.parametrize(
    "name", ["rewards/short/reward.json", "environments/short/environment.json"]
)
def test_own_code_and_files_that_were_edited_since_their_row_was_made_are_refused(
    tmp_path, monkeypatch, name
):
    monkeypatch.chdir(tmp_path)
    source, file, folder = Path("short.py"), Path("words.txt"), Path("data", name).parent
    for path in (source, file):
        path.write_text("first\n")
    folder.mkdir(parents=True)

    def make_row():
        traced = record_digests("data/own/short", source)
        content = {"own": "short", "own_digest": digest(traced), "files": {str(file): digest(file)}}
        Path("data", name).write_text(json.dumps(content))

    make_row()
    intact.check_sources([str(folder)])
    source.write_text("second\n")
    with pytest.raises(ValueError, match=r"short\.py"):
        intact.check_sources([str(folder)])
    record_digests("data/own/short", source)  # as `posttrain reach` does before the row is made
    with pytest.raises(ValueError, match="data/own/short was edited"):
        intact.check_sources([str(folder)])
    Path("data/own/short").unlink()
    with pytest.raises(ValueError, match="data/own/short was edited"):
        intact.check_sources([str(folder)])
    make_row()
    intact.check_sources([str(folder)])
    file.write_text("second\n")
    with pytest.raises(ValueError, match=r"words\.txt"):
        intact.check_sources([str(folder)])


def damage(path):
    """Flip a bit in place, with mode and time as before, as a disk would."""
    state, content = path.stat(), bytearray(path.read_bytes())
    content[-1] ^= 1
    path.chmod(0o644)
    path.write_bytes(bytes(content))
    path.chmod(state.st_mode)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("link", "damaged", "trainings"),
    [("hardlink", "cache", 2), ("copy", "input", 1), ("copy", "only copy", 1)],
)
def test_a_damaged_input_is_named_before_it_is_used_and_restored_or_made_anew(
    link, damaged, trainings, toy_repo
):
    toy_repo.run("dvc", "config", "cache.type", link)
    toy_repo.repro(STAGE)
    model = toy_repo.path / "data/policies/sft/model"
    weights, config = model / "0/weights", model / "0/config.json"
    whole = weights.read_bytes()
    md5 = hashlib.md5(whole).hexdigest()
    cached = toy_repo.path / f".dvc/cache/files/md5/{md5[:2]}/{md5[2:]}"
    damage(cached if damaged == "cache" else weights)
    if damaged == "cache":  # as in another clone: DVC believes what it restores
        shutil.rmtree(model)
        toy_repo.run("dvc", "checkout", "-q", STAGE)
    if damaged == "only copy":
        cached.rename(toy_repo.path / "away")
    output = toy_repo.repro("-s", "evaluate@sft", code=255)
    assert str(weights.relative_to(toy_repo.path)) in output
    assert config.name not in output
    assert (weights.exists(), config.exists()) == (damaged == "only copy", True)
    if damaged == "only copy":
        return
    toy_repo.repro("evaluate@sft")
    assert weights.read_bytes() == whole
    assert len(list(toy_repo.path.glob("data/runs/train/sft/*"))) == trainings
    toy_repo.run("dvc", "status", "-q", "evaluate@sft")


CHECK = """
import os, sys
from pathlib import Path
with Path("calls").open("a") as file:
    file.write("x")
if "bad" in Path("params.yaml").read_text():
    sys.exit("bad: unknown key")
if "much" in Path("params.yaml").read_text():
    os.kill(os.getpid(), 9)
"""


def test_the_plan_is_checked_once_for_each_state_of_the_files_that_it_reads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    preflight.check()
    assert list(tmp_path.iterdir()) == [], "a folder without the check has nothing to check"
    calls, raw = Path("calls"), Path("data/raw/pairs.jsonl")
    raw.parent.mkdir(parents=True)
    Path("stages").mkdir()
    Path("stages/__init__.py").touch()
    edits = {
        "stages/plan.py": CHECK, "params.yaml": "seed: 1\n", "stages/more.py": "pass\n",
        "stages/presets.yaml": "dpo: {}\n", "dvc.yaml": "stages: {}\n", str(raw): "1",
    }  # fmt: skip
    Path("params.yaml").touch()
    for number, (name, text) in enumerate(edits.items(), start=1):
        Path(name).write_text(text)
        preflight.check()
        preflight.check()
        assert len(calls.read_text()) == number, name
    os.utime(raw, ns=(1, 1))  # an edit of equal length
    preflight.check()
    assert len(calls.read_text()) == 7
    Path("params.yaml").write_text("bad: 0\n")
    for number in (8, 9):  # each time, until it is right
        with pytest.raises(ValueError, match="bad"):
            preflight.check()
        assert len(calls.read_text()) == number
    Path("params.yaml").write_text("much: 0\n")
    with pytest.raises(ValueError, match=r"memory ran out.* ended without a word, exited with -9$"):
        preflight.check()
