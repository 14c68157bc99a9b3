"""`posttrain new` of each kind as it stands: a valid plan, a small run, what an edit reruns."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pipeline_copy import Edit, PipelineCopy, find_edit

from flows import new
from stages.own_modules import IN_PRESETS

pytestmark = pytest.mark.slow

KINDS = list(new.EXAMPLES)
MADE = {"reward": "reward@my_reward", "environment": "environment@my_environment",
        "labeller": "label@my_labeller"}  # fmt: skip
"""Kind -> the stage of its own that a new row adds."""
POLICIES = {f"train@my_{kind}" for kind in KINDS if kind != "source"}


@pytest.fixture(scope="module")
def copy(pipeline_copy: Callable[[Edit], PipelineCopy]) -> PipelineCopy:
    made = pipeline_copy(find_edit("new files"))
    for kind in KINDS:
        made.run("-m", "flows.command_line", "new", kind, f"my_{kind}")
    source = locate(made, "source")
    source.write_text(source.read_text().replace("3000", "500"))
    made.run("-m", "flows.command_line", "check")
    before = {"plan", "trace_code", "prepare_data", "train@sft", "pool@sft", "reward@rule"}
    assert made.repro(*POLICIES) == before | {*MADE.values(), *POLICIES}
    return made


def locate(copy: PipelineCopy, kind: str) -> Path:
    (path,) = copy.path.glob(f"stages/*/own/my_{kind}.py")
    return path


def test_what_they_yield_is_what_is_learned_from(copy: PipelineCopy) -> None:
    card = copy.read("data/prepared/data_card.json")
    assert (card["source"], card["rows_read"]) == ("own/my_source", 500)
    assert card["solutions_that_state_the_answer"] == 1.0
    metrics = copy.read("data/pairs/my_labeller/0/metrics.json")
    assert metrics["train"]["pairs"] > 0
    journal = copy.path / "data/journals/train/my_reward/journal-seed-0.jsonl"
    assert "reward/own" in journal.read_text()


@pytest.mark.weekly
def test_edits_rerun_the_rows_that_name_the_files_and_no_others(copy: PipelineCopy) -> None:
    runs = {"trace_code"}
    for kind in KINDS:
        path = locate(copy, kind)
        path.write_text(f"{path.read_text()}\n# A comment.\n")
        runs |= {MADE.get(kind, "trace_code")}
        # Of a source and of a labeller the outputs are those of before.
        runs |= {"prepare_data"} if kind == "source" else set()
        runs |= set() if kind in ("source", "labeller") else {f"train@my_{kind}"}
        runs |= {"plan"} if kind in IN_PRESETS else set()  # which tries it on tensors
    assert copy.repro(*POLICIES) == runs


def test_a_surrogate_that_cannot_be_learned_with_is_refused_by_the_plan(copy: PipelineCopy) -> None:
    path = locate(copy, "surrogate")
    text = path.read_text()
    path.write_text(text.replace("torch.where(mask, penalty - ratio * advantages, 0.0)", "ratio"))
    try:
        with pytest.raises(AssertionError, match=r"my_surrogate\.py, surrogate.*of the mask"):
            copy.repro("train@my_surrogate")
    finally:
        path.write_text(text)
