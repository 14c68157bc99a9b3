"""The whole pipeline on conversations: SFT, people's pairs, DPO, and RL on a learned reward."""

import gzip
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from pipeline_copy import ROOT, PipelineCopy

HH = ROOT.parent / "shared/data/hh_rlhf_harmless/test.jsonl.gz"


def use_conversations(params: dict[str, Any], presets: dict[str, Any]) -> None:
    """What of HH-RLHF fits the least model; what was chosen is imitated."""
    params["model"]["tiny"] |= {"hidden_size": 32, "num_layers": 1, "max_length": 384}
    source = {"path": "data/raw/hh.jsonl.gz", "columns": {"messages": "chosen"}}
    params["data"] |= {"source": source | {"ignore": ["rejected"]}, "mixture": None}
    params["data"] |= {"max_prompt_tokens": 256, "max_completion_tokens": 128}
    params["data"] |= {"max_bad_share": 0.95}
    params["data"]["shares"] |= {"test": 0.2, "dev": 0.2}
    words = {"preset": "hh_rlhf", "from": "base", "on": "raw/hh.jsonl.gz"}
    params["pools"], params["steps"] = {}, {}
    params["pairs"] = {"people": {"by": "people", **words}}
    learned = {"preset": "bradley_terry", "from": "sft", "on": "pairs/people"}
    scored = {"by": "rule", "preset": "model", "from": "base", "on": "rewards/people"}
    params["rewards"] = {"people": {"by": "preference", **learned}, "scored": scored}
    del params["policies"]["dpo-ai"]
    params["policies"]["dpo"]["on"] = "pairs/people"
    params["policies"]["ppo"]["on"] = "rewards/people"
    params["policies"]["grpo"]["on"] = "rewards/scored"
    params["seeds"], params["sft"]["num_epochs"] = [0], 1
    for split in params["sampling"].values():
        split |= {"num_samples": 4, "max_new_tokens": 24}
    params["evaluation"]["ks"] = [1]
    presets["hh_rlhf"] |= {"max_tokens": 384, "max_bad_share": 0.5, "max_long_share": 0.95}


@pytest.mark.slow
@pytest.mark.rotating
@pytest.mark.skipif(not HH.is_file(), reason="HH-RLHF is not at ../shared/data/hh_rlhf_harmless")
def test_the_whole_pipeline_runs_on_conversations(pipeline_copy: Callable[..., PipelineCopy]):
    copy = pipeline_copy(use_conversations)
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
    assert report["policies"]["sft"]["wins/people"]["value"] == 0.5
    assert set(report["gains"]["reward/people"]) == {"dpo", "ppo", "grpo"}
    assert "No answer can be checked" in (copy.path / "data/report/verdict.txt").read_text()
    page = (copy.path / "data/report/report.html").read_text()
    assert "wins against sft" in page
    assert "Right answer" not in page
