"""The whole pipeline on conversations: SFT, people's pairs, DPO, and RL on a learned reward."""

import gzip
import itertools
import json
from collections.abc import Callable

import pytest
from pipeline_copy import ROOT, PipelineCopy, find_edit

HH = ROOT.parent / "shared/data/hh_rlhf_harmless/test.jsonl.gz"


@pytest.mark.weekly
@pytest.mark.skipif(not HH.is_file(), reason="HH-RLHF is not at ../shared/data/hh_rlhf_harmless")
def test_the_whole_pipeline_runs_on_conversations(pipeline_copy: Callable[..., PipelineCopy]):
    copy = pipeline_copy(find_edit("conversations"))
    (copy.path / "data/raw").mkdir(parents=True, exist_ok=True)
    with gzip.open(HH, "rb") as file, gzip.open(copy.path / "data/raw/hh.jsonl.gz", "wb") as some:
        some.writelines(itertools.islice(file, 700))
    copy.repro()
    prompts = (copy.path / "data/prompts/test.jsonl").read_text().splitlines()
    assert all(json.loads(line)["answer"] is None for line in prompts)
    card = copy.read("data/prepared/data_card.json")
    assert card["demonstrations_by_task"] == {"chat": card["counts"]["demonstrations"]}
    # an earlier turn of the assistant is learned, too
    assert card["counts"]["demonstrations"] > card["counts"]["train"] / 2
    rollouts = (copy.path / "data/policies/grpo/training/0/rollouts.jsonl").read_text()
    assert {json.loads(line)["correct"] for line in rollouts.splitlines()} == {None}
    report = copy.read("data/report/metrics.json")
    assert set(report["policies"]) == {"sft", "dpo", "ppo", "grpo"}
    assert set(report["policies"]["dpo"]) - set(report["policies"]["sft"]) == {"wins/people"}
    assert set(report["gains"]["reward/people"]) == {"dpo", "ppo", "grpo"}
    page = (copy.path / "data/report/report.html").read_text()
    assert "wins against sft" in page
    assert "Right answer" not in page
