"""What a policy cost: tokens generated, tokens trained on, seconds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Of one stage, or of several together."""

    generated_tokens: int
    """Sampled from a policy."""
    trained_tokens: int
    """Went through a backward pass, each time they did."""
    seconds: float
    """On the machine that executed the stage; a restored stage keeps the seconds of its run."""


def entry(stages: Sequence[str], costs: Mapping[str, Cost]) -> dict[str, Any]:
    """One policy in the `costs` of `data/compare_policies/metrics.json`: its stages together."""
    return {
        "generated_tokens": sum(costs[stage].generated_tokens for stage in stages),
        "trained_tokens": sum(costs[stage].trained_tokens for stage in stages),
        "seconds": round(sum(costs[stage].seconds for stage in stages), 1),
        "stages": list(stages),
    }
