"""What every training loop yields."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One optimizer step, or one rollout batch of a reinforcement-learning loop."""

    index: int
    """From 0."""
    metrics: dict[str, int | float]
    """Numbers of this step, named `family/name`."""
    rows: Sequence[Any] = ()
    """Records the step produced (rollouts); empty for loops that produce none."""


def totals(steps: Sequence[Step]) -> dict[str, int]:
    """Steps, tokens sampled, and tokens of backward passes, each time they went through one."""
    return {"steps": len(steps)} | {
        f"{name}_tokens": sum(int(step.metrics[f"tokens/{name}"]) for step in steps)
        for name in ("generated", "trained")
    }
