"""What a policy of one seed spent of its budget."""

from collections.abc import Mapping
from typing import Any

from stages.reports.stage_costs import StageCost


def row(
    policy: str, seed: int, paid: Mapping[str, StageCost], made_by: str, budget: int
) -> dict[str, Any]:
    """One of `spent` in `data/compare/<name>/metrics.json`.

    Args:
        policy: its name.
        seed: of its training.
        paid: every entry that was trained or sampled for it beyond the baseline's.
        made_by: the entry of these that trained it.
        budget: tokens; `overshoot` is what was spent above it, a share of it.
    """
    tokens = {entry: one.generated_tokens + one.trained_tokens for entry, one in paid.items()}
    total = sum(tokens.values())
    return {
        "policy": policy,
        "seed": seed,
        "before": total - tokens[made_by],
        "generated": paid[made_by].generated_tokens,
        "trained": paid[made_by].trained_tokens,
        "total": total,
        "overshoot": round(total / budget - 1.0, 6),
        "seconds": round(sum(one.seconds for one in paid.values()), 1),
    }
