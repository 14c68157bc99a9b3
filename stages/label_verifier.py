"""Pairs of a right and a wrong completion of a problem, told apart by the answer checker.

    python -m stages.label_verifier <pairs> --by verifier --preset .. --from .. --on pools/<pool>

Reads a pool of each seed and the problems that it answers; writes `train.jsonl`, of the pool's own
split, and `heldout.jsonl`, of dev problems. The label comes from the answer checker, so unlike
people's or a judge's preferences (Christiano et al. 2017, https://arxiv.org/abs/1706.03741) it is
never wrong about the final answer and says nothing about style.
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


class VerifierPreset(Params):
    """How pairs are made."""

    max_pairs_per_problem: int = Field(ge=1)
    """At most so many pairs of one problem, so that no problem dominates."""


class Config(Params):
    """What label_verifier reads of params.yaml, and its preset."""

    seeds: list[int]
    preset: VerifierPreset


def main(*words: str) -> None:
    """Write `train.jsonl`, `heldout.jsonl` and `metrics.json` of each seed."""
    stage.run(label, "label", words, Config)


def label(run: Run) -> dict[str, Any]:
    """The pairs of one seed; refused where there are none to learn from."""
    config, row = run.config, run.row
    metrics: dict[str, Any] = {}
    for side in pools.SIDES:
        problems = pools.read_pools(row.source, run.seed, side)
        labelled = [
            verifier_labels.label_pairs(
                prompt,
                pool,
                source="verifier",
                max_pairs=config.preset.max_pairs_per_problem,
                seed=derive_seed(run.seed, "label_verifier", prompt.id),
            )
            for prompt, pool in run.track(problems, label=side)
        ]
        metrics[side] = verifier_labels.summarise_pairs(labelled)
        if side == "train" and not metrics[side]["pairs"]:
            raise ValueError(
                f"{row.source}: expected problems with both a right and a wrong completion, found "
                f"none: {metrics[side]}. Train the policy for longer (sft.num_epochs), sample more "
                f"of each problem (section sampling), or take another model or other problems."
            )
        run.log(0, {f"{side}/{name}": value for name, value in metrics[side].items()})
        run.write(f"{side}.jsonl", (pair for problem in labelled for pair in problem.preferences))
    return metrics


if __name__ == "__main__":
    process.run(main)
