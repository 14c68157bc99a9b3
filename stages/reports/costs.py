"""Which stages a policy had to pay for."""

from stages import lineage, recipe
from stages.recipe import Recipe

SPENDING_STAGES = (
    "compute_ref_logprobs/",
    "judge_preferences/",
    "label_steps/",
    "revise_answers/",
    "sample_candidates/",
    "score_candidates/",
    "train_",
)
"""The beginnings of entries in which models read, generate or train on tokens."""


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
