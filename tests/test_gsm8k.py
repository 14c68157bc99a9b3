"""The whole pipeline on GSM8K with a model that is much too small: it runs, and says so."""

from collections.abc import Callable
from typing import Any

import pytest
from pipeline_copy import ROOT, PipelineCopy

GSM8K = ROOT.parent / "shared" / "data" / "gsm8k"


def use_gsm8k(params: dict[str, Any], presets: dict[str, Any]) -> None:
    """All 8,792 problems; the least model, one epoch, few and short completions."""
    # A model that cannot answer can neither judge nor complete.
    for table, name in (("policies", "dpo-ai"), ("pairs", "judge"), ("rewards", "process")):
        del params[table][name]
    params["steps"] = {}
    params["seeds"] = [0]
    params["model"]["tiny"] |= {"hidden_size": 32, "num_layers": 1, "max_length": 2048}
    params["data"] |= {
        "source": {"kind": "gsm8k", "path": str(GSM8K), "revision": None, "licence": "MIT"},
        "mixture": None,
        "shares": {"preference": 0.05, "dev": 0.05, "test": 0.1},
        "max_prompt_tokens": 640,
        "max_completion_tokens": 896,
        "max_bad_share": 0.0,
    }
    params["sft"] |= {"num_epochs": 1, "batch_size": 32}
    for name, split in params["sampling"].items():
        # Pairs need a right completion here and there, and only a whole one can be right.
        learned = name in ("preference", "heldout")
        split |= {"num_samples": 16 if learned else 4, "max_new_tokens": 160 if learned else 48}
    params["ppo"]["max_new_tokens"] = params["grpo"]["max_new_tokens"] = 48
    params["evaluation"]["ks"] = [1]


@pytest.mark.slow
@pytest.mark.skipif(not GSM8K.is_dir(), reason="GSM8K is not at ../shared/data/gsm8k")
def test_the_whole_pipeline_runs_on_gsm8k(pipeline_copy: Callable[..., PipelineCopy]):
    copy = pipeline_copy(use_gsm8k)
    assert len(copy.repro()) == 22
    card = copy.read("data/prepared/data_card.json")
    assert card["source_problems"] == {"train": 7473, "test": 1319}
    comparison = copy.read("data/report/metrics.json")
    assert comparison["num_problems"] == 1319
    accuracy = {name: one["mean_accuracy"]["value"] for name, one in comparison["policies"].items()}
    print(f"mean accuracy on GSM8K's test split: {accuracy}")
    assert set(accuracy) == {"sft", "dpo", "ppo", "grpo"}
    assert all(0 <= value < 0.1 for value in accuracy.values())
    assert (
        "no verdict over seeds is possible" in (copy.path / "data/report/verdict.txt").read_text()
    )
