"""What a policy cost: tokens generated, tokens trained on, seconds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages import lineage, recipe
from stages.recipe import Recipe

SPENDING_STAGES = (
    "compute_ref_logprobs/",
    "judge_preferences/",
    "label_steps/",
    "revise_answers/",
    "sample_candidates/",
    "train_",
)
"""The beginnings of entries that generate or train on tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Of one stage, or of several together."""

    generated_tokens: int
    """Sampled from a policy."""
    trained_tokens: int
    """Went through a backward pass, each time they did."""
    seconds: float
    """On the machine that executed the stage; a restored stage keeps the seconds of its run."""


def paid(plan: Recipe) -> dict[str, list[str]]:
    """Evaluated policy -> the entries that were trained or sampled for it, in order.

    Those that the baseline needed too are left out, but for the baseline itself.
    """
    reads = lineage.learned_from(plan)
    needed = {
        policy: [
            step for step in lineage.lineage(made_by, reads) if step.startswith(SPENDING_STAGES)
        ]
        for policy, made_by in recipe.evaluated(plan).items()
    }
    baseline, *others = needed
    shared = set(needed[baseline])
    return {baseline: needed[baseline]} | {
        policy: [step for step in needed[policy] if step not in shared] for policy in others
    }


def entry(stages: Sequence[str], costs: Mapping[str, Cost]) -> dict[str, Any]:
    """One policy in the `costs` of `data/compare_policies/metrics.json`: its stages together."""
    return {
        "generated_tokens": sum(costs[stage].generated_tokens for stage in stages),
        "trained_tokens": sum(costs[stage].trained_tokens for stage in stages),
        "seconds": round(sum(costs[stage].seconds for stage in stages), 1),
        "stages": list(stages),
    }
