"""Labels by the answer checker: preference pairs, or demonstrations by rejection sampling.

    python -m stages label_verifier  <pairs> --by verifier  --preset .. --from .. --on pools/<pool>
    python -m stages label_selection <pairs> --by selection --preset .. --from .. --on pools/<pool>

Both read a pool of each seed and the problems that it answers. `verifier` writes pairs of a right
and a wrong completion of a problem: `train.jsonl`, of the pool's own split, and `heldout.jsonl`, of
dev problems. The label comes from the answer checker, so unlike people's or a judge's preferences
(Christiano et al. 2017, https://arxiv.org/abs/1706.03741) it is never wrong about the final answer
and says nothing about style; `flip_percent` makes training pairs wrong on purpose. `selection`
writes `demonstrations.jsonl`, rows like those of prepare_data: right completions, for supervised
fine-tuning (rejection sampling: stages/rewards/verifier_labels.py).
"""

from typing import Any

from pydantic import Field

from stages import stage
from stages.config import Params
from stages.loops.run import Run
from stages.records import pools
from stages.rewards import verifier_labels
from stages.seeding import derive_seed


class VerifierPreset(Params):
    """Preference pairs from verdicts."""

    max_pairs_per_problem: int = Field(ge=1)
    """Most pairs per problem, so that no problem dominates."""
    flip_percent: int = Field(default=0, ge=0, le=100)
    """Per cent of the training pairs in which chosen and rejected are exchanged; 50 leaves nothing
    to learn."""


class SelectionPreset(Params):
    """Demonstrations from right completions."""

    max_per_problem: int = Field(ge=1)
    """Most demonstrations per problem, so that easy problems do not dominate."""


class VerifierLabelling(Params):
    """Keys of params.yaml that label_verifier reads, and its preset."""

    seeds: list[int]
    preset: VerifierPreset


class SelectionLabelling(Params):
    """Keys of params.yaml that label_selection reads, and its preset."""

    seeds: list[int]
    preset: SelectionPreset


CONFIGS = {"label_verifier": VerifierLabelling, "label_selection": SelectionLabelling}


def main(*words: str) -> None:
    """Write pairs or demonstrations, and `metrics.json`, of each seed."""
    label = label_pairs if words[0] == "label_verifier" else select_demonstrations
    stage.run(label, words, CONFIGS)


def label_pairs(run: Run) -> dict[str, Any]:
    """Write the pairs of one seed; returns metrics by side. A ValueError without train pairs."""
    metrics: dict[str, Any] = {}
    problems = {side: pools.read_pools(run.row.source, run.seed, side) for side in pools.SIDES}
    for side, tracked in run.track_parts(problems, "problems"):
        labelled = [
            verifier_labels.label_pairs(
                prompt,
                pool,
                max_pairs=run.config.preset.max_pairs_per_problem,
                seed=derive_seed(run.seed, "label_verifier", prompt.id),
            )
            for prompt, pool in tracked
        ]
        if side == "train" and (percent := run.config.preset.flip_percent):
            seed = derive_seed(run.seed, "label_verifier", "flips")
            labelled = verifier_labels.swap_sides(labelled, percent, seed)
        metrics[side] = verifier_labels.summarise_pairs(labelled)
        run.progress.watch({"pairs": metrics[side]["pairs"]})
        if side == "train" and not metrics[side]["pairs"]:
            raise ValueError(
                f"{run.row.source}: expected problems with both a right and a wrong completion, "
                f"found none: {metrics[side]}. Train the policy for longer (sft.num_epochs), "
                f"sample more of each problem (section sampling), or take another model or other "
                f"problems."
            )
        run.log(0, {f"{side}/{name}": value for name, value in metrics[side].items()})
        run.write(f"{side}.jsonl", (pair for problem in labelled for pair in problem.preferences))
    return metrics


def select_demonstrations(run: Run) -> dict[str, Any]:
    """Write the demonstrations of one seed; returns their metrics. A ValueError without any."""
    problems = pools.read_pools(run.row.source, run.seed, "train")
    selected = [
        verifier_labels.select_demonstrations(
            prompt,
            pool,
            max_kept=run.config.preset.max_per_problem,
            seed=derive_seed(run.seed, "label_selection", prompt.id),
        )
        for prompt, pool in run.track(problems, unit="problems")
    ]
    metrics = verifier_labels.summarise_demonstrations(
        selected, sum(len(pool) for _, pool in problems)
    )
    if not metrics["kept"]:
        raise ValueError(
            f"{run.row.source}: expected right completions that are not truncated, found none: "
            f"{metrics}. Sample more of each problem (section sampling: num_samples, "
            f"max_new_tokens), or from a policy that sometimes solves them."
        )
    run.log(0, metrics)
    run.progress.watch({"kept": metrics["kept"]})
    run.write("demonstrations.jsonl", (row for problem in selected for row in problem))
    return metrics
