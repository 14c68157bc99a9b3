"""Demonstrations for supervised fine-tuning, chosen among a policy's own completions.

    python -m stages.label_selection <pairs> --by selection --preset .. --from .. --on pools/<pool>

Reads a pool of each seed and the problems that it answers; writes `demonstrations.jsonl`, rows like
those of prepare_data. Rejection sampling: stages/rewards/verifier_labels.py.
"""

from pathlib import Path
from typing import Any

from pydantic import Field

from stages import row_run
from stages.config import Params
from stages.records import lines, pools
from stages.rewards import verifier_labels
from stages.rows import Row
from stages.runtime import process
from stages.runtime.seeds import SeedRun
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
    with row_run.start("label", words, Config) as job:
        job.each_seed(select)


def select(config: Config, row: Row, own: Path, run: SeedRun) -> dict[str, Any]:
    """The demonstrations of one seed; refused where not a single completion is right."""
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
    lines.write_lines(own / "demonstrations.jsonl", (one for some in selected for one in some))
    return metrics


if __name__ == "__main__":
    process.run(main)
