"""What `flows.compare` leaves in the copies of the repository, written by hand: no model ran."""

import json
from pathlib import Path

from ruamel.yaml import YAML

from stages import params
from stages.records import lines
from stages.records.pools import Completion
from stages.records.problems import Prompt

ROOT = Path(__file__).parents[1]
TOKENS = {
    "sample_candidates/sft-preference": (300, 0),
    "train_reward_model/sft-0": (0, 100),
    "compute_ref_logprobs/sft": (0, 0),
    "train_dpo/dpo": (0, 650),
    "train_ppo/ppo": (310, 310),
    "train_grpo/grpo": (520, 500),
}
"""Generated and trained on."""


def write_plan(folder: Path, recipe: str = "dpo_ppo_grpo") -> None:
    """The parameters of this repository, with this recipe as the plan."""
    folder.mkdir(parents=True, exist_ok=True)
    content = params.read(ROOT / "params.yaml")
    content = {name: value for name, value in content.items() if name != "recipes"} | {
        "plan": content["recipes"][recipe]
    }
    YAML().dump(content, folder / "params.yaml")


def write_costs(folder: Path) -> None:
    """Metrics and run records of everything that the three policies are made from."""
    for entry, (generated, trained) in TOKENS.items():
        path = folder / "data" / entry
        (path / "run").mkdir(parents=True, exist_ok=True)
        metrics = {"generated_tokens": generated, "trained_tokens": trained}
        (path / "metrics.json").write_text(json.dumps(metrics))
        (path / "run/run.json").write_text(json.dumps({"seconds": 2.0}))


def write_pools(folder: Path, right: dict[str, list[int]], num_samples: int = 4) -> None:
    """Test problems, and of each policy's completions of each so many right ones."""
    num_problems = len(next(iter(right.values())))
    lines.write(
        folder / "data/prepare_data/prompts/test.jsonl",
        (
            Prompt(id=f"p{i}", task="solve", question="?", prompt="?", prompt_ids=[1], answer="7")
            for i in range(num_problems)
        ),
    )
    for policy, numbers in right.items():
        pool = folder / f"data/sample_candidates/{policy}-test"
        lines.write(
            pool / "pool.jsonl",
            (
                completion(f"p{i}", index, right=index < number)
                for i, number in enumerate(numbers)
                for index in range(num_samples)
            ),
        )
        greedy = (completion(f"p{i}", 0, right=number > 0) for i, number in enumerate(numbers))
        lines.write(pool / "greedy.jsonl", greedy)


def completion(problem: str, index: int, *, right: bool) -> Completion:
    """One that ends in the right answer, 7, or in a wrong one."""
    return Completion(
        id=problem,
        index=index,
        completion=f"#### {7 if right else 8}",
        completion_ids=[2],
        logprob_sum=-1.0,
        finish_reason="stop",
        seed=0,
    )
