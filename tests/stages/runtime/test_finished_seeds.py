"""Seeds that are finished in one run of a stage and joined by another: the bits of a run of all."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from seed_stage import read_outputs, records, run_seed_stage, started, write_seed_stage
from toy_repo import init_dvc

from flows import seeds
from stages.runtime import finished_seeds, identity, journal, runs

ROOT = Path(__file__).parents[3]
IDENTITY = {"stage": "train@toy", "input_key": "a", "seed": 1}
RECORD = {"host": "here", "packages": {"torch": "2.10"}}
ALL = ["seed-0", "seed-1", "seed-2"]
ROWS = YAML(typ="safe").load(Path(__file__).with_name("cases.yaml"))


@pytest.fixture
def kept(tmp_path):
    """The scratch of a finished seed, whose journal holds a row of an earlier attempt beyond."""
    folders = [tmp_path / "model", tmp_path / "training"]
    for folder in folders:
        (folder / "deep").mkdir(parents=True)
        (folder / "deep/file").write_text(folder.name)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with journal.writing(scratch / "journal.jsonl") as log:
        log(0, {"loss": 1})
        length = log.length
        log(1, {"loss": 1})
        log.length = length
        finished_seeds.store_seed(scratch, IDENTITY, folders, log, RECORD)
    return scratch


def take(scratch, identity=IDENTITY, **surroundings):
    folders = [scratch.parent / f"taken/{number}" for number in range(2)]
    record = finished_seeds.restore_seed(scratch, identity, folders, surroundings)
    assert (record is not None) == (scratch / "finished").exists() == folders[0].exists()
    return record


def test_a_finished_seed_is_taken_with_its_journal(kept):
    (kept / "journal.jsonl").unlink()
    assert take(kept) == RECORD
    assert [row.index for row in journal.read_rows(kept / "journal.jsonl")] == [0]
    for number, name in enumerate(("model", "training")):
        assert (kept.parent / f"taken/{number}/deep/file").read_text() == name


def rewrite(path, content):
    path.unlink()  # it may be a link
    path.write_text(content)


def point_outside(finished):
    (finished.parent / "outside").write_text("model")
    manifest = finished / "manifest.json"
    rewrite(manifest, manifest.read_text().replace("outputs/0/deep/file",
                                                   "outputs/0/../../../outside"))  # fmt: skip


FILE = "outputs/0/deep/file"
DAMAGES = {
    "bits": lambda finished: rewrite(finished / FILE, "modeL"),
    "lost": lambda finished: (finished / FILE).unlink(),
    "manifest": lambda finished: rewrite(finished / "manifest.json",
                                         (finished / "manifest.json").read_text()[:-9]),
    "outside": point_outside,
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_seed_is_not_taken(kept, damage):
    DAMAGES[damage](kept / "finished")
    assert take(kept) is None


@pytest.mark.parametrize("key", IDENTITY)
def test_a_seed_of_another_run_or_other_packages_is_not_taken(kept, key):
    assert take(kept, packages={"torch": "2.10"}) is not None
    shutil.rmtree(kept.parent / "taken")
    if key == "seed":
        assert take(kept, packages={"torch": "2.11"}) is None
    else:
        assert take(kept, IDENTITY | {key: "another"}) is None


@pytest.mark.parametrize("row", ROWS["differences"])
def test_seeds_of_one_run_have_the_same_arithmetic(row):
    there, here = (ROWS["surroundings"] | row[name] for name in ("there", "here"))
    difference = finished_seeds.find_difference(there, here)
    assert bool(difference) == bool(row["says"])
    assert row["says"] in (difference or "")


def test_seeds_of_several_devices_are_joined_with_a_warning(tmp_path, caplog):
    folders = [tmp_path / device for device in ("cpu", "H100", "not finished")]
    for folder in folders[:2]:
        (folder / "finished").mkdir(parents=True)
        (folder / "finished/seed.json").write_text(json.dumps({"device": folder.name}))
    finished_seeds.warn_of_devices([folders[0], *folders[::2]])
    assert not caplog.messages
    finished_seeds.warn_of_devices(folders)
    assert "H100 and cpu" in caplog.messages[0]


def test_seconds_of_a_joined_run_count_what_overlaps_once_and_no_pause():
    def record(started, ended, **others):
        times = {"started": f"2026-01-01T00:00:{started}", "ended": f"2026-01-01T00:00:{ended}"}
        return {**times, "peak_memory_bytes": 5, **others}

    earlier = {0: record(10, 20), 1: record(15, 25, peak_memory_bytes=9), 2: record(16, 18)}
    joined = runs.join_records(earlier, record(40, 42, host="here"))
    assert joined["seconds"] == 15 + 2
    assert (joined["started"][-2:], joined["ended"][-2:]) == ("10", "42")
    assert joined["peak_memory_bytes"] == 9
    assert joined["seeds"]["1"] == earlier[1]


@pytest.mark.parametrize(("text", "expected"), [("1", [1]), ("0,2", [2, 0]), (None, None)])
def test_seeds_are_chosen_in_the_order_of_the_parameter(monkeypatch, text, expected):
    if text is not None:
        monkeypatch.setenv(finished_seeds.SEEDS, text)
    assert finished_seeds.read_choice([2, 1, 0]) == expected


@pytest.mark.parametrize(("name", "value"), [
    ("POSTTRAIN_SEEDS", "3"), ("POSTTRAIN_SEEDS", ""), ("DVC_STAGE", "train@toy"),
    ("TORCHELASTIC_RUN_ID", "a"),
])  # fmt: skip
def test_other_seeds_or_a_choice_under_dvc_or_torchrun_are_refused(monkeypatch, name, value):
    monkeypatch.setenv(finished_seeds.SEEDS, "1")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="POSTTRAIN_SEEDS"):
        finished_seeds.read_choice([0, 1, 2])


def test_seeds_that_another_machine_joined_are_released_and_no_others(tmp_path):
    assert (seeds.ENDED, seeds.PARTIAL) == (identity.ENDED, identity.PARTIAL)
    ended = tmp_path / identity.PIPE / f"train@grpo-{'5' * 16}" / identity.ENDED
    ended.parent.mkdir(parents=True)
    ended.write_text(identity.PARTIAL)
    for key, text in (("6" * 64, identity.PARTIAL), ("5" * 64, "")):
        seeds.release(tmp_path, "train@grpo", key)
        assert ended.read_text() == text


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A DVC repository whose only stage has three seeds."""
    root = tmp_path / "checkout"
    init_dvc(root)
    monkeypatch.chdir(root)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    write_seed_stage(root)
    (root / ".gitignore").write_text("/data/*\n/.pipe/\n/started.log\n")
    return root


@pytest.fixture
def compute(checkout, monkeypatch):
    """`compute("0,2")`: these seeds, or all, in this process; returns those that were computed."""

    def run(seeds=None, start="base", **environment):
        with monkeypatch.context() as patch:
            chosen = {} if seeds is None else {"POSTTRAIN_SEEDS": seeds}
            for name, value in (chosen | environment).items():
                patch.setenv(name, value)
            run_seed_stage(start)
        return sorted(started(checkout))

    return run


def test_seeds_of_several_calls_give_the_bits_of_one(checkout, compute):
    """One is computed twice, one is damaged, one is killed, one fails, one is of edited inputs."""
    assert compute() == ALL
    whole = read_outputs(checkout)
    shutil.rmtree(checkout / "data")
    assert compute("1") == ["seed-1"]
    with pytest.raises(ValueError, match="seed 2"):
        compute("1,0,2", TOY_KILL="2")
    assert started(checkout) == ["seed-0", "seed-2"] or started(checkout) == []
    with pytest.raises(ValueError, match="edited"):
        compute("2", TOY_EDIT="2")  # it is not kept, whose inputs are others by its end
    write_seed_stage(checkout)
    assert not list(checkout.glob(".pipe/*/seed-2/finished"))
    started(checkout)
    assert compute("0,2") == ["seed-2"]
    assert not (checkout / "data").exists()
    (weights,) = checkout.glob(".pipe/*/seed-0/finished/outputs/0/deep/weights")
    weights.write_text("damaged")
    assert compute() == ["seed-0"]
    assert read_outputs(checkout) == whole
    (record,) = records(checkout)
    assert sorted(record["seeds"]) == ["1", "2"]
    with pytest.raises(ValueError, match="on purpose"):
        compute(TOY_FAIL="2")
    assert sorted(started(checkout)) == ALL
    assert compute() == ["seed-2"], "those beside it are kept"
    write_seed_stage(checkout, rate=0.2)
    assert compute("1") == ["seed-1"]
    assert read_outputs(checkout) == whole
    with pytest.raises(ValueError, match="train@toy"):
        compute("1", start="other")
