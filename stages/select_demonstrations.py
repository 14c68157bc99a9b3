"""Demonstrations for supervised fine-tuning, chosen among a policy's own completions.

    python -m stages.select_demonstrations <name> <pool> <split>

Reads a pool and the prompts it answers; writes `demonstrations.jsonl`, rows like those of
prepare_data. Rejection sampling: stages/rewards/rejection_sampling.py.
"""

from pathlib import Path
from typing import Literal

import pydantic

from stages import params, seeding
from stages.params import Params
from stages.records import lines, pools
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards import rejection_sampling
from stages.runtime import outputs, process, progress, runs

PROMPTS = Path("data/prepare_data/prompts")
POOLS = Path("data/sample_candidates")
OUTPUT = Path("data/select_demonstrations")


class SelectDemonstrations(Params):
    """What is kept."""

    source: Literal["verifier"]
    """Who says which completion is right: the answer checker."""
    max_per_problem: int = pydantic.Field(ge=1)
    """At most so many of one problem, so that easy problems do not dominate."""


class Config(Params):
    """What select_demonstrations reads of params.yaml."""

    seed: int
    select_demonstrations: SelectDemonstrations


def main(name: str, pool_name: str, split: str) -> None:
    """Write `demonstrations.jsonl` and `metrics.json`.

    Raises:
        ValueError: not a single completion is right.
    """
    pool_path, output = POOLS / pool_name / "pool.jsonl", OUTPUT / name
    with runs.start(f"select_demonstrations@{name}", output) as run:
        config = params.load(Config)
        problems = pools.by_problem(
            lines.read(PROMPTS / f"{split}.jsonl", Prompt), lines.read(pool_path, Completion)
        )
        selected = [
            rejection_sampling.select(
                prompt,
                pool,
                max_kept=config.select_demonstrations.max_per_problem,
                seed=seeding.derive(config.seed, "select_demonstrations", prompt.id),
            )
            for prompt, pool in progress.track(
                problems, total=len(problems), label=f"select {name}"
            )
        ]
        metrics = rejection_sampling.summarise(selected, sum(len(pool) for _, pool in problems))
        if not metrics["kept"]:
            raise ValueError(
                f"{pool_path}: expected right completions that ended by themselves, found none: "
                f"{metrics}. Sample more of each problem (sample_candidates.{split}: num_samples, "
                f"max_new_tokens), or from a policy that sometimes solves them."
            )
        run.log(0, metrics)
        with outputs.replace(output / "demonstrations.jsonl") as temporary:
            lines.write(temporary, (row for rows in selected for row in rows))
        outputs.write_json(output / "metrics.json", metrics)


if __name__ == "__main__":
    process.run(main)
