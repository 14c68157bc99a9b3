"""Repositories in which the whole pipeline runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipeline_copy import PipelineCopy


def shrink(params: dict[str, Any]) -> None:
    """A model and data so small that a stage mostly starts up."""
    params["model"]["tiny"] |= {"hidden_size": 64, "num_layers": 2, "num_heads": 2}
    params["model"]["tiny"] |= {"intermediate_size": 128}
    params["prepare_data"]["source"] |= {"num_problems": 900, "max_value": 20}
    params["prepare_data"]["shares"] |= {"preference": 0.1, "dev": 0.1, "test": 0.05}
    # So few demonstrations have to teach to solve, or no solution is right.
    params["prepare_data"]["mixture"] |= {"critique": 0.05, "revise": 0.1}
    for preset in params["sft"].values():
        preset |= {"num_epochs": 6, "batch_size": 16}
        preset["optim"]["learning_rate"] = 3e-3
    params["sft"]["cold_start"]["num_demonstrations"] = 100
    for split in params["sample_candidates"].values():
        split["num_samples"] = 8
    for split in params["label_steps"].values():
        split |= {"num_problems": 20, "num_completions": min(2, split["num_completions"])}
        split["audit"]["num_bootstrap"] = 200
    params["judge_preferences"]["injection_pairs"] = 4
    params["train_ppo"]["loop"] |= {"num_steps": 2, "prompts_per_step": 8}
    params["train_grpo"]["loop"] |= {"num_steps": 2, "prompts_per_step": 8, "group_size": 4}
    params["evaluate_policy"] |= {"ks": [1, 2], "num_draws": 16, "num_bootstrap": 200}
    params["choose_aggregation"] |= {"n": 2, "num_draws": 16}
    params["evaluate_best_of_n"] |= {"num_problems": 16, "num_samples": 16}
    params["evaluate_checkpoints"] |= {"num_samples": 2, "num_bootstrap": 200}
    params["report_overoptimization"]["num_bootstrap"] = 200
    for stage in ("train_dpo", "train_ppo", "train_grpo"):
        params[stage]["num_checkpoints"] = 1
    params["search_solutions"]["num_bootstrap"] = 200
    params["probe_policy"] |= {"num_problems": 20, "num_bootstrap": 200}
    params["probe_policy"]["attack"]["num_pairs"] = 4
    params["compare_probes"]["num_bootstrap"] = 200
    params["compare_policies"]["num_bootstrap"] = 200


@pytest.fixture(scope="session")
def pipeline_copy(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[Callable[[dict[str, Any]], None]], PipelineCopy]:
    """Makes a small copy of the repository, further changed by the function it is given."""

    def make(change: Callable[[dict[str, Any]], None]) -> PipelineCopy:
        path: Path = tmp_path_factory.mktemp("copy")
        copy = PipelineCopy(path, shrink)
        copy.change(change)
        return copy

    return make
