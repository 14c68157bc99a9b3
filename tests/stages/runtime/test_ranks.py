"""A stage whose model several processes train: forked here, or started by torchrun."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import stage_inputs
import torch
from safetensors.torch import load_file
from stage_inputs import MODEL, SEED
from tiny_checkpoints import COMPUTE
from tiny_rollouts import OPTIM, make_pairs

from stages.records import lines
from stages.rows import DATA
from stages.runtime import ranks

ROOT = Path(__file__).parents[3]
WORDS = ("new", "--train", "dpo", "--preset", "mine", "--from", "sft", "--on", "pairs/old")
COUNT = """
import os, pathlib, sys

def note(_=None):
    name = os.environ.get("RANK", "forked") + "-" + str(os.getpid())
    (pathlib.Path(os.environ["SEEN"]) / name).touch()

os.register_at_fork(after_in_child=note)
if "train_dpo" in sys.orig_argv:
    note()
"""
"""Python reads it as it starts: a process that is the stage, or a fork of it, leaves its number."""
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m")
POLICY = DATA / "policies/new"


def run(number, seeds, start=(sys.executable, "-m")):
    stage_inputs.configure(
        {"kind": "sigmoid", "beta": 0.1, "label_smoothing": 0.0},
        seeds,
        num_processes=number,
        compute=COMPUTE,
        model=MODEL,
        lora={"rank": 0, "alpha": 16},
        dpo={"num_checkpoints": 1, "num_epochs": 2, "batch_size": 3, "optim": OPTIM},
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "TORCHELASTIC_RUN_ID")}
    seen = Path(f"seen-{number}")
    seen.mkdir()
    Path("count").mkdir(exist_ok=True)
    Path("count/sitecustomize.py").write_text(COUNT)
    paths = os.pathsep.join([str(ROOT), str(Path("count").resolve())])
    return subprocess.run(
        [*start, "stages", "train_dpo", *WORDS],
        env=environment | {"PYTHONPATH": paths, "SEEN": str(seen.resolve())},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A pipeline of two seeds, up to the pairs."""
    monkeypatch.chdir(tmp_path)
    for seed in (SEED, SEED + 1):
        stage_inputs.write_policy(seed=seed)
        lines.write_lines(DATA / f"pairs/old/{seed}/train.jsonl", make_pairs(5))


def written():
    """The files of the policy, and its weights by file."""
    files = sorted(path for path in POLICY.rglob("*") if path.is_file())
    return files, {path: load_file(path) for path in files if path.suffix == ".safetensors"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seeds", "start"),
    [([SEED], ()), ([SEED, SEED + 1], ()), ([SEED, SEED + 1], TORCHRUN)],
    ids=["one seed", "two seeds", "torchrun"],
)
def test_what_two_write_is_what_one_writes(seeds, start):
    assert run(1, seeds).returncode == 0
    expected_files, expected = written()
    actual = run(2, seeds, *([start] if start else []))
    assert actual.returncode == 0, actual.stderr
    files, weights = written()
    assert files == expected_files
    together, alone = ([path.name for path in Path(f"seen-{n}").iterdir()] for n in (2, 1))
    if start:
        assert {"0", "1"} <= {name.split("-")[0] for name in together}
    else:
        assert len(together) - len(alone) == len(seeds), "nobody trained beside the first"
    assert len(expected) == 2 * len(seeds), "a policy and a checkpoint each"
    for path, values in expected.items():
        for name, value in values.items():
            assert torch.allclose(weights[path][name], value, atol=1e-4), name
    assert {path.name for path in Path(".pipe").rglob("*") if path.is_file()} <= {"train@new.lock"}


@pytest.mark.slow
def test_torchrun_of_another_number_is_refused():
    result = run(3, [SEED], TORCHRUN)
    assert result.returncode != 0
    assert "num_processes is 3, torchrun started 2" in result.stderr
    assert not POLICY.exists()


FAILS = """
import sys, time
from pathlib import Path
from stages.runtime import ranks
def work(rank):
    if rank == int(sys.argv[1]):
        raise ValueError("out of memory")
    time.sleep(60)
ranks.SECONDS_TO_RAISE = 0.1
with ranks.joined(work, 2, Path.cwd()) as rank:
    work(rank)
"""


@pytest.mark.parametrize("rank", ["0", "1"])
def test_an_error_of_one_ends_all(rank):
    result = subprocess.run(
        [sys.executable, "-c", FAILS, rank], env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False, timeout=50,
    )  # fmt: skip
    assert result.returncode == 1
    assert "ValueError: out of memory" in result.stderr


def test_alone_it_is_called(tmp_path):
    with ranks.joined(lambda rank: None, 1, tmp_path) as rank:
        assert rank == 0
    assert list(tmp_path.glob("ranks")) == []
