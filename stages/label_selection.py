"""Demonstrations for supervised fine-tuning, chosen among a policy's own completions.

    python -m stages.label_selection <pairs> --by selection --preset .. --from .. --on pools/<pool>

Reads a pool of each seed and the problems that it answers; writes `demonstrations.jsonl`, rows like
those of prepare_data. Rejection sampling: stages/rewards/verifier_labels.py.
"""

from typing import Any

from pydantic import Field

from stages import stage
from stages.config import Params
from stages.loops.run import Run
from stages.records import pools
from stages.rewards import verifier_labels
from stages.runtime import process
from stages.seeding import derive_seed


class SelectionPreset(Params):
    """What is kept of the completions that the answer checker accepts."""

    max_per_problem: int = Field(ge=1)
    """At most so many of one problem, so that easy problems do not dominate."""


class Config(Params):
    """What label_selection reads of params.yaml, and its preset."""

    seeds: list[int]
    preset: SelectionPreset


def main(*words: str) -> None:
    """Write `demonstrations.jsonl` and `metrics.json` of each seed."""
    stage.run(select, "label", words, Config)


def select(run: Run) -> dict[str, Any]:
    """The demonstrations of one seed; refused where not a single completion is right."""
    config, row = run.config, run.row
    problems = pools.read_pools(row.source, run.seed, "train")
    selected = [
        verifier_labels.select_demonstrations(
            prompt,
            pool,
            max_kept=config.preset.max_per_problem,
            seed=derive_seed(run.seed, "label_selection", prompt.id),
        )
        for prompt, pool in run.track(problems)
    ]
    metrics = verifier_labels.summarise_demonstrations(
        selected, sum(len(pool) for _, pool in problems)
    )
    if not metrics["kept"]:
        raise ValueError(
            f"{row.source}: expected right completions that ended by themselves, found none: "
            f"{metrics}. Sample more of each problem (section sampling: num_samples, "
            f"max_new_tokens), or from a policy that sometimes solves them."
        )
    run.log(0, metrics)
    run.write("demonstrations.jsonl", (one for some in selected for one in some))
    return metrics


if __name__ == "__main__":
    process.run(main)
