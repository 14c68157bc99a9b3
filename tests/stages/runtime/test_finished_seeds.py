"""Seeds that are finished in one run of a stage and joined by another: the bits of a run of all."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from seed_stage import STAGE, read_outputs, records, started, write_seed_stage

from stages.runtime import finished_seeds, journal, runs
from stages.tracking import view

ROOT = Path(__file__).parents[3]
IDENTITY = {"stage": "train@toy", "input_key": "a", "seed": 1}


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
        finished_seeds.keep(scratch, IDENTITY, folders, log, {"host": "here"})
    return scratch


def take(scratch, identity=IDENTITY):
    folders = [scratch.parent / "taken/0", scratch.parent / "taken/1"]
    record = finished_seeds.take(scratch, identity, folders)
    assert (record is not None) == (scratch / "finished").exists()
    return record


def test_a_finished_seed_is_taken_with_its_journal(kept):
    written = (kept / "journal.jsonl").read_bytes()
    (kept / "journal.jsonl").unlink()
    assert take(kept) == {"host": "here"}
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


@pytest.mark.slow
def test_seeds_of_several_calls_give_the_bits_of_one(tmp_path):
    """One is killed, one is damaged, a number is edited, one fails."""
    root = tmp_path / "checkout"
    root.mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

    def run(*command, **extra):
        return subprocess.run(
            command, cwd=root, env=environment | extra, capture_output=True, text=True, check=False
        )

    def compute(seeds, **extra):
        return run("python", "-m", "flows.seeds", STAGE, seeds, **extra)

    run("git", "init", "-q")
    run("dvc", "init", "-q")
    write_seed_stage(root)
    (root / ".gitignore").write_text("/data/*\n/.pipe/\n/started.log\n")
    assert run("dvc", "repro").returncode == 0
    assert len(started(root)) == 3
    whole = read_outputs(root)
    assert "seeds" not in records(root)[0]

    for name in ("data", ".dvc/cache", ".pipe"):
        shutil.rmtree(root / name)
    (root / "dvc.lock").unlink()
    for seed in ("1", "0"):
        assert compute(seed).returncode == 0
    assert compute("2", TOY_KILL="2").returncode == 137
    assert compute("2").returncode == 0
    assert sorted(started(root)) == ["seed-0", "seed-1", "seed-2", "seed-2"]
    assert not (root / "data").exists()
    assert not (root / "dvc.lock").exists()
    (weights,) = root.glob(".pipe/*/seed-0/finished/outputs/0/deep/weights")
    weights.write_text("damaged")
    done = run("dvc", "repro")
    assert "seed 1 was finished on" in done.stderr
    assert "is not used" in done.stderr
    assert started(root) == ["seed-0"]
    assert read_outputs(root) == whole
    (record,) = records(root)
    assert sorted(record["seeds"]) == ["1", "2"]

    write_seed_stage(root, rate=0.2)
    assert compute("1").returncode == 0
    assert read_outputs(root) == whole
    write_seed_stage(root, rate=0.3)
    assert run("dvc", "repro", TOY_FAIL="2").returncode != 0
    assert sorted(started(root)) == ["seed-0", "seed-1", "seed-1", "seed-2"]
    assert run("dvc", "repro").returncode == 0
    assert started(root) == ["seed-2"]
    assert read_outputs(root) != whole
