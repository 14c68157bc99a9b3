"""Who a stage run is, what it records, and that it changes no output: with DVC as it is."""

import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from dvc.stage.serialize import to_single_stage_lockfile
from ruamel.yaml import YAML
from seed_runs import for_each_seed
from terminals import run_on_terminal
from toy_repo import wait_until

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


def test_the_key_of_an_entry_is_of_its_contents_and_not_of_their_sizes():
    out = {"path": "data/model", "hash": "md5", "md5": "1.dir", "size": 3, "nfiles": 1}
    dep = {"path": "work.py", "hash": "md5", "md5": "2", "size": 4, "nfiles": 2}
    entry = {"cmd": "python work.py", "deps": [dep], "outs": [out], "params": {"p": {"rate": 1e-5}}}
    key = identity.lock_key(entry)
    same = [
        {"deps": [dep | {"size": 5}]}, {"deps": [dep | {"nfiles": 5}]},
        {"outs": [out | {"md5": "9.dir"}]},
    ]  # fmt: skip
    other = [{"cmd": "python"}, {"deps": [dep | {"md5": "3"}]}, {"params": {"p": {"rate": 1e-4}}},
             {"outs": [out | {"path": "data/policy"}]}]  # fmt: skip
    assert {identity.lock_key(entry | changes) for changes in same} == {key}
    assert len({key, *(identity.lock_key(entry | changes) for changes in other)}) == 5


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

    def write_rest(_):
        waits.append(lock.write_text(whole))

    monkeypatch.setattr(identity.time, "sleep", write_rest)
    for number, cut in enumerate(('"md5"', '"cmd"'), start=1):
        lock.write_text(whole[: whole.rindex(cut) + 2])
        assert not identity.recorded(make_execution(input_key=key))
        assert identity.input_key(identity.dvc_stage(STAGE)) == key
        assert len(waits) == number
        assert identity.recorded(make_execution(input_key=key))
        assert not identity.recorded(make_execution(input_key=KEY))
    lock.unlink()
    content = Path("dvc.yaml").read_text()
    Path("dvc.yaml").write_text("stages: [")
    with pytest.raises(ValueError, match=r"dvc\.yaml"):
        identity.dvc_stage(STAGE)
    assert len(waits) == 2, "a broken dvc.yaml is not waited for"
    Path("dvc.yaml").write_text(content)


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
    with runs.start(STAGE) as run:
        repo.set_params(rate="0.5")
        with pytest.raises(ValueError, match=STAGE):  # before it learns from others than its own
            for_each_seed(lambda run: None, [0], run)
        repo.set_params()
        repo.set_params(goal=0.75)  # which evaluate reads
        for_each_seed(lambda run: None, [0], run)
    (record,) = Path("data/runs/train/sft").iterdir()
    shutil.rmtree(record)
    with pytest.raises(ValueError, match=STAGE), runs.start(STAGE):
        repo.set_params(rate="0.5")
    assert list(Path("data/runs/train/sft").iterdir()) == []
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


@pytest.mark.parametrize(("variables", "is_partial", "text"), [
    ({"DVC_STAGE": STAGE}, False, ""), ({}, True, identity.PARTIAL), ({}, False, None),
], ids=["by dvc", "some seeds", "by hand"])  # fmt: skip
def test_scratch_stays_until_its_outputs_are_recorded(
    variables, is_partial, text, folder, monkeypatch
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    identity.leave(make_execution(), folder, is_partial=is_partial)
    assert folder.exists() == (text is not None)
    if text is not None:
        assert (folder / identity.ENDED).read_text() == text


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


def test_scratch_of_other_inputs_is_bounded_and_can_be_cleaned(repo, monkeypatch, capsys):
    monkeypatch.chdir(repo.path)
    monkeypatch.setattr(sys, "argv", ["work.py", STAGE])
    present = f"{STAGE}-{identity.find_present_key(STAGE)[:16]}"
    for number in "01234":
        record = identity.PIPE / f"{STAGE}-{number * 16}" / identity.EXECUTION
        record.parent.mkdir(parents=True)
        record.write_text(json.dumps(asdict(make_execution(input_key=number * 64))))
        os.utime(record, (int(number), int(number)))
    missing, last = [identity.PIPE / f"{name}-{'9' * 16}" for name in ("train@gone", "sample@dpo")]
    for folder in (missing, last):  # without a stage, and with one that has no inputs yet
        folder.mkdir()

    def stay():
        return {folder.name for folder in identity.find_folders()} - {missing.name, last.name}

    newest = {f"{STAGE}-{number * 16}" for number in "34"}
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["work.py", "by hand"])
        with identity.claim(STAGE) as (_, by_hand, _):
            assert {f"{STAGE}-{number * 16}" for number in "01234"} <= stay()
        shutil.rmtree(by_hand)
    with identity.claim(STAGE):
        assert stay() == {present} | newest
        clean.main()
        assert stay() == {present} | newest
    assert (missing.exists(), last.exists()) == (False, True)
    clean.main("--dry-run")
    assert newest <= {*re.findall(r"(?m)^\.pipe/(\S+)", capsys.readouterr().out)}
    assert stay() == {present} | newest
    clean.main()
    assert stay() == {present}
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
    assert len((folder / "seed-0/journal.jsonl").read_text().splitlines()) == 4
    toy_repo.set_params(rate="0.5")
    toy_repo.repro(STAGE)
    other = toy_repo.record(STAGE)
    assert other["attempt"] == 1
    assert other["execution_id"] != killed["execution_id"]
    assert folder.exists()
    toy_repo.set_params()
    toy_repo.repro(STAGE)
    record = toy_repo.record(STAGE)
    assert (record["execution_id"], record["attempt"]) == (killed["execution_id"], 2)
    lines = (toy_repo.find_record(STAGE) / "journal-seed-0.jsonl").read_text().splitlines()
    assert [json.loads(line)["index"] for line in lines] == [0, 1, 2, 3, 4, 5]
    # It stays until the next stage finds the outputs in dvc.lock: dvc may be killed before.
    assert (folder / "ended").exists()
    output = toy_repo.run("python", "work.py", "train@dpo", code=1, TOY_STOP="fail")
    assert not folder.exists()
    assert "RuntimeError" in output
    (failed,) = toy_repo.path.glob(".pipe/train@dpo-*/failed.json")
    assert json.loads(failed.read_text())["error"].startswith("RuntimeError")
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
    toy_repo.run(*command)
    assert read_outputs(data) == written
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


@pytest.mark.parametrize(
    ("file", "is_dirty"), [(None, False), ("dvc.lock", False), ("work.py", True)]
)
def test_a_tree_is_dirty_by_its_code_and_not_by_the_lock_that_the_pipeline_writes(
    file, is_dirty, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert runs.git_state() == (None, None)
    for name in ("dvc.lock", "work.py"):
        Path(name).write_text("a")
    for words in (["init", "-q"], ["add", "-A"],
                  ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "a"]):  # fmt: skip
        subprocess.run(["git", *words], check=True)
    if file is not None:
        Path(file).write_text("b")
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


def test_records_of_equal_inputs_are_listed_from_the_oldest_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, ended in (("a", "2026-01-02"), ("b", "2026-01-01"), ("c", "2026-01-03")):
        path = Path(f"data/runs/train/sft/{KEY[:16]}-{name}/run.json")
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"ended": ended}))
    names = [path.name[-1] for path in runs.find_records(STAGE, KEY)]
    assert names == ["b", "a", "c"]
    assert runs.find_records(STAGE, "6" * 64) == []


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


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A source file that the trace knows."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("rate = 1\n")
    Path(TRACED).parent.mkdir(parents=True)
    digest = hashlib.sha256(b"rate = 1\n").hexdigest()
    Path(TRACED).write_text(json.dumps({"train.py": digest}))
    return Path("train.py")


@pytest.mark.parametrize(("edit", "is_refused"), [
    (lambda file: file.touch(), False), (lambda file: file.write_text("rate = 2\n"), True),
    (lambda file: file.unlink(), True),
], ids=["touched", "edited", "removed"])  # fmt: skip
def test_code_that_was_edited_since_dvc_looked_at_it_is_refused(edit, is_refused, source):
    edit(source)
    intact.check_sources(["data/other/train.jsonl"])  # without a trace
    if is_refused:
        with pytest.raises(ValueError, match=r"train\.py"):
            intact.check_sources([TRACED])
    else:
        intact.check_sources([TRACED])


@pytest.mark.parametrize("is_cached", [True, False])
def test_a_damaged_input_is_removed_if_dvc_has_a_copy_and_the_others_stay(is_cached, tmp_path):
    """A copy that is damaged too is no copy: it goes, so that the input is computed again."""
    contents = {"whole": b"a", "damaged": b"b", "damaged copy": b"c"}
    md5s = {name: hashlib.md5(content).hexdigest() for name, content in contents.items()}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content if name == "whole" else b"other")
        if is_cached:
            (tmp_path / md5s[name]).write_bytes(b"" if name == "damaged copy" else content)
    deps = [
        SimpleNamespace(
            fs_path=tmp_path / name,
            hash_info=SimpleNamespace(name="md5", isdir=False, value=md5s[name]),
        )
        for name in contents
    ]
    local = SimpleNamespace(oid_to_path=lambda md5: tmp_path / md5)
    repo = SimpleNamespace(cache=SimpleNamespace(local=local))
    with pytest.raises(ValueError, match="damaged copy"):
        intact.check_inputs(SimpleNamespace(deps=deps, repo=repo))
    stay = {"whole"} if is_cached else set(contents)
    assert {name for name in contents if (tmp_path / name).exists()} == stay
    copies = {"whole", "damaged"} if is_cached else set()
    assert {name for name in contents if (tmp_path / md5s[name]).exists()} == copies
    intact.check_inputs(SimpleNamespace(deps=deps[:1], repo=repo))


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
    ("link", "in_cache"), [("hardlink", True), ("copy", True), ("copy", False)]
)
def test_a_damaged_input_is_named_before_it_is_used_and_restored_or_made_anew(
    link, in_cache, toy_repo
):
    toy_repo.run("dvc", "config", "cache.type", link)
    toy_repo.repro(STAGE)
    model = toy_repo.path / "data/policies/sft/model"
    weights, config = model / "0/weights", model / "0/config.json"
    whole = weights.read_bytes()
    md5 = hashlib.md5(whole).hexdigest()
    damage(toy_repo.path / f".dvc/cache/files/md5/{md5[:2]}/{md5[2:]}" if in_cache else weights)
    if in_cache:  # as in another clone: DVC believes what it restores
        shutil.rmtree(model)
        toy_repo.run("dvc", "checkout", "-q", STAGE)
    output = toy_repo.repro("evaluate@sft", code=255)
    assert str(weights.relative_to(toy_repo.path)) in output
    assert config.name not in output
    assert (weights.exists(), config.exists()) == (False, True)
    toy_repo.repro("evaluate@sft")
    assert weights.read_bytes() == whole
    trainings = list(toy_repo.path.glob("data/runs/train/sft/*"))
    assert len(trainings) == (2 if in_cache else 1)
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
