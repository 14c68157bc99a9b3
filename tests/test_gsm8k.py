"""The whole pipeline on GSM8K with a model that is much too small: it runs, and says so."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipeline_copy import ROOT, PipelineCopy

GSM8K = ROOT.parent / "shared" / "data" / "gsm8k"


def use_gsm8k(params: dict[str, Any]) -> None:
    """All 8,792 problems; the least model, one epoch, few and short completions."""
    # A model that cannot answer can neither judge nor revise.
    params["plan"] = params["recipes"]["dpo_ppo_grpo"]
    params["model"]["tiny"] |= {"hidden_size": 32, "num_layers": 1, "max_length": 2048}
    params["prepare_data"] |= {
        "source": {"kind": "gsm8k", "path": str(GSM8K), "revision": None, "licence": "MIT"},
        "mixture": None,
        "shares": {"preference": 0.05, "dev": 0.05, "test": 0.1},
        "max_prompt_tokens": 640,
        "max_completion_tokens": 896,
        "max_bad_share": 0.0,
    }
    params["sft"]["sft"] |= {"num_epochs": 1, "batch_size": 32}
    for name, num_samples in (("preference", 16), ("dev", 16), ("test", 4)):
        params["sample_candidates"][name] |= {"num_samples": num_samples, "max_new_tokens": 48}
    params["train_ppo"]["loop"]["max_new_tokens"] = 48
    params["train_grpo"]["loop"]["max_new_tokens"] = 48
    params["evaluate_policy"]["ks"] = [1]
    params["probe_policy"] |= {"num_problems": 20, "max_new_tokens": 48, "max_tokens": 2048}
    params["probe_policy"]["dev"] |= {"num_samples": 1, "max_new_tokens": 48}


@pytest.mark.slow
@pytest.mark.skipif(not GSM8K.is_dir(), reason="GSM8K is not at ../shared/data/gsm8k")
def test_the_whole_pipeline_runs_on_gsm8k(pipeline_copy: Callable[..., PipelineCopy]):
    copy = pipeline_copy(use_gsm8k)
    copy.run("-m", "flows.gather")
    assert len(copy.repro()) == 34
    card = copy.read("data/prepare_data/data_card.json")
    assert card["source_problems"] == {"train": 7473, "test": 1319}
    comparison = copy.read("data/compare_policies/metrics.json")
    assert comparison["num_problems"] == 1319
    accuracy = {name: one["mean_accuracy"] for name, one in comparison["policies"].items()}
    print(f"mean accuracy on GSM8K's test split: {accuracy}")
    assert set(accuracy) == {"sft", "dpo", "ppo", "grpo"}
    assert all(0 <= value < 0.1 for value in accuracy.values())
    assert "1319 test problems" in Path(copy.path / "data/compare_policies/report.md").read_text()
