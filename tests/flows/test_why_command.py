"""The command: two commits, two machines' files, what else was learned; and what it refuses."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from compared_pipeline import DVC_YAML, PARAMS, Pipeline

ROOT = Path(__file__).parents[2]
REWARD = """\
  reward:
    cmd: python reward.py
    params: [reward]
    outs: [data/rewards/preference]
"""
REWARD_SOURCE = """\
import json, pathlib
from ruamel.yaml import YAML
rate = YAML(typ="safe").load(pathlib.Path("params.yaml"))["reward"]
for seed in range(2):
    folder = pathlib.Path("data/rewards/preference", str(seed))
    folder.mkdir(parents=True)
    told = {"heldout/accuracy": {"value": rate + seed / 10, "low": 0.0, "high": 1.0}}
    (folder / "metrics.json").write_text(json.dumps(told | {"heldout": {"auc": 0.5}}))
"""


def commit(pipeline: Pipeline, message: str) -> None:
    pipeline.call("git", "add", ".")
    pipeline.call("git", "-c", "user.name=a", "-c", "user.email=@", "commit", "-qm", message)


def command(path: Path, *words: str) -> tuple[int, str, str]:
    """Exit status, output and errors of `python -m flows.why` in a folder."""
    done = subprocess.run([sys.executable, "-m", "flows.why", *words], cwd=path, check=False,
                          env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True,
                          text=True)  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_two_commits_and_what_else_was_learned(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    (tmp_path / "dvc.yaml").write_text(DVC_YAML + REWARD)
    (tmp_path / "reward.py").write_text(REWARD_SOURCE)
    pipeline.parameters({**PARAMS, "reward": 0.5})
    pipeline.repro()
    commit(pipeline, "second")
    pipeline.parameters({**PARAMS, "left": {"rate": 0.75}, "reward": 0.75})
    pipeline.repro()
    commit(pipeline, "third")
    pipeline.parameters(PARAMS)  # what lies in the folder is none of the two
    assert command(tmp_path, "HEAD~1", "HEAD") == (0, """\
HEAD~1 and HEAD: 4 of 7 stages have other results

left.rate: 0.5 -> 0.75
  other results: train@left evaluate@left compare

reward: 0.5 -> 0.75
  other results: reward

Mean accuracy on the test problems, %, and the difference:
  left: 61.0 [36.2, 85.8] -> 86.0 [61.2, 110.8], 25.0 [25.0, 25.0] of the same 3 problems

Other held-out metrics, means over seeds:
  rewards/preference, accuracy: 0.550 -> 0.800, +0.250 (+0.250 to +0.250 in 2 seeds)
  rewards/preference, AUC: 0.500 -> 0.500, +0.000 (+0.000 to +0.000 in 2 seeds)
""", "")  # fmt: skip
    status, said, _ = command(tmp_path, "HEAD~2", "HEAD")
    assert status == 0
    assert "reward is new" in said


@pytest.mark.slow
def test_the_files_of_two_machines_name_their_processors(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    source = tmp_path / "stages/evaluate.py"
    source.write_text(source.read_text().replace("i / 10", "i / 10 + len(os.environ['CPU']) / 100"))
    for name, cpu in (("mine", "an older one"), ("theirs", "new")):
        pipeline.dvc("repro", "-q", "-f", "-s", "trace_code")
        pipeline.dvc("repro", "-q", "-f", "-s", "evaluate@left", CPU=cpu)
        pipeline.record("evaluate@left", cpu)
        pipeline.dvc("repro", "-q", "-s", "compare")
        shutil.copy(tmp_path / "dvc.lock", tmp_path / f"{name}.lock")
    status, said, _ = command(tmp_path, "mine.lock", "theirs.lock")
    assert status == 0
    assert said.splitlines()[:4] == [
        "mine.lock and theirs.lock: 2 of 6 stages have other results",
        "",
        "nothing that evaluate@left reads: it ran on an older one, then on new",
        "  other results: evaluate@left compare",
    ]


def test_what_it_cannot_do_it_says_and_ends_with_2(tmp_path: Path) -> None:
    status, said, error = command(tmp_path, "nowhere")
    assert (status, said) == (2, "")
    assert "not in a git repository" in error
    status, _, error = command(tmp_path, "a", "b", "c")
    assert status == 2
    assert "two commits" in error
