"""Copies of a run: what is made in them, in which order, and that they keep what is whole."""

import os
from pathlib import Path

import pytest
import studied_run
from studied_run import ROOT

from stages.config import PARAMS_PATH, PRESETS_PATH, read_yaml
from stages.rows import ENTRY_POINTS, STAGES
from stages.studies import copies
from stages.studies.copies import Command

PLAN = {
    "policies": {
        "sft": {"train": "sft", "preset": "sft", "from": "base", "on": "demonstrations"},
        "dpo": {"train": "dpo", "preset": "dpo", "from": "sft", "on": "pairs/verifier"},
        "ppo": {"train": "ppo", "preset": "p", "from": "sft", "on": "rewards/preference"},
    },
    "pools": {"sft": {"from": "sft", "split": "preference"}},
    "pairs": {"verifier": {"by": "verifier", "preset": "v", "from": "sft", "on": "pools/sft"}},
    "steps": {},
    "rewards": {
        "preference": {"by": "preference", "preset": "b", "from": "sft", "on": "pairs/verifier"}
    },
}
STAND_IN = """
import os, pathlib, sys
out = pathlib.Path("data/samples") / sys.argv[2]
if sys.argv[2] == "broken":
    sys.exit("this is why")
out.mkdir(parents=True)
named = ("DVC_STAGE", "DVC_ROOT")
(out / "seen").write_text(" ".join(os.environ.get(name, "none") for name in named))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A run whose only stage is a stand-in that writes down its environment."""
    monkeypatch.chdir(tmp_path)
    studied_run.write_yaml(PARAMS_PATH, {"seeds": [0, 1], "model": {"path": None}})
    studied_run.write_yaml(PRESETS_PATH, {"dpo": {"beta": 0.5}})
    for name in ("__init__", "plan", "__main__"):
        Path(f"stages/{name}.py").write_text(STAND_IN if name == "__main__" else "", "utf-8")
    (tmp_path / "data/prompts").mkdir(parents=True)
    (tmp_path / "data/pairs/verifier").mkdir(parents=True)


def test_rows_come_after_what_they_are_made_from():
    assert copies.list_needed_rows(PLAN, "policies", "ppo") == [
        ("policies", "sft"), ("pools", "sft"), ("pairs", "verifier"), ("rewards", "preference"),
        ("policies", "ppo"),
    ]  # fmt: skip
    assert copies.list_needed_rows(PLAN, "policies", "sft") == [("policies", "sft")]
    assert copies.list_needed_rows(PLAN, "policies", "base") == []


def test_a_row_is_told_as_dvc_tells_it():
    command = copies.make_row_command("policies", "dpo", PLAN["policies"]["dpo"])
    assert command.entry_point == "train_dpo"
    assert command.words == (
        "dpo", "--train", "dpo", "--preset", "dpo", "--from", "sft", "--on", "pairs/verifier",
    )  # fmt: skip
    assert command.output == "policies/dpo/model"
    pool = copies.make_row_command("pools", "sft", PLAN["pools"]["sft"])
    assert (pool.entry_point, pool.output) == ("pool", "pools/sft")
    assert pool.words == ("sft", "--from", "sft", "--split", "preference")
    assert (
        copies.make_row_command("pairs", "verifier", PLAN["pairs"]["verifier"]).entry_point
        == "label_verifier"
    )
    steps = {"by": "completions", "preset": "c", "from": "sft", "on": "pools/sft"}
    of_steps = copies.make_row_command("steps", "sft", steps)
    # a child dies with the study only if `runtime/process` knows it by DVC's name of its stage
    assert (of_steps.entry_point, of_steps.stage) == ("steps_completions", "label_steps@sft")


@pytest.mark.parametrize("table", STAGES)
def test_every_table_is_a_stage_of_dvc_yaml(table):
    stages = read_yaml(ROOT / "dvc.yaml")["stages"]
    rows = [name for name, item in stages.items() if item.get("foreach") == f"${{{table}}}"]
    assert rows[0] == STAGES[table]


def test_a_copy_has_its_own_numbers_and_shares_the_rest(tmp_path):
    copy = copies.make_copy(
        tmp_path / "copy", share=["pairs/verifier"], changes={"seeds": [1]},
        presets={"budgeted": {"beta": 0.1}},
    )  # fmt: skip
    assert read_yaml(copy.path / PARAMS_PATH) == {"seeds": [1], "model": {"path": None}}
    assert set(read_yaml(copy.path / PRESETS_PATH)) == {"dpo", "budgeted"}
    assert read_yaml(PARAMS_PATH)["seeds"] == [0, 1]
    assert (copy.data / "pairs/verifier").resolve() == tmp_path / "data/pairs/verifier"
    assert not (copy.path / "stages/plan.py").exists()


def test_a_stage_of_a_copy_runs_once(tmp_path, monkeypatch):
    monkeypatch.setitem(os.environ, "DVC_ROOT", "elsewhere")
    copy = copies.make_copy(tmp_path / "copy")
    copy.run(copies.make_sample_command("sft"))
    seen = copy.data / "samples/sft/seen"
    assert seen.read_text() == "sample@sft none"
    seen.write_text("kept")
    copies.make_copy(tmp_path / "copy").run(copies.make_sample_command("sft"))
    assert seen.read_text() == "kept"


def test_a_stage_that_fails_says_why(tmp_path):
    copy = copies.make_copy(tmp_path / "copy")
    with pytest.raises(RuntimeError, match=r"sample@broken failed in .*\n.*this is why"):
        copy.run(Command("sample", ("broken",), "samples/broken", "sample@broken"))


def test_every_stage_that_a_copy_may_run_is_there():
    for table, rows in PLAN.items():
        for name, row in rows.items():
            assert copies.make_row_command(table, name, row).entry_point in ENTRY_POINTS
