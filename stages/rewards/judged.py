"""What sampled completions are worth, and what that is made of."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A batch of completions, judged; everything in the order of the completions."""

    totals: Sequence[float]
    """Paid at the last token of each completion."""
    parts: dict[str, list[float]] = field(default_factory=dict)
    """Component -> its value for each completion, as it was found: logged, not paid."""
    step_rewards: Float[Tensor, "batch token"] | None = None
    """Paid besides `totals`, at the last token of each step; 0 elsewhere. Laid out as
    `Rollouts.mask()`. None: there are no steps."""
    step_ends: Bool[Tensor, "batch token"] | None = None
    """Where `step_rewards` are paid: a reward of 0 is one too. None exactly where they are."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Further numbers to log, each a mean over the completions."""

    def __post_init__(self) -> None:
        """Refuse rewards of steps without their ends, and the other way round."""
        if (self.step_rewards is None) != (self.step_ends is None):
            raise ValueError("expected step_rewards and step_ends together, found one of them")

    def rewards(self) -> Float[Tensor, " batch"]:
        """All that a completion is paid, whenever it is paid."""
        totals = torch.tensor(self.totals, dtype=torch.float32)
        return totals if self.step_rewards is None else totals + self.step_rewards.sum(1)

    def statistics(self) -> dict[str, float]:
        """The mean of each part as `reward/<name>`, and `metrics`."""
        means = {f"reward/{name}": sum(part) / len(part) for name, part in self.parts.items()}
        return means | self.metrics


def join(batches: Sequence[Judged]) -> Judged:
    """All completions of `batches`, in order, which were judged in the same way."""
    total = sum(len(batch.totals) for batch in batches)
    return Judged(
        totals=[value for batch in batches for value in batch.totals],
        parts={
            name: [value for batch in batches for value in batch.parts[name]]
            for name in batches[0].parts
        },
        step_rewards=_stack([batch.step_rewards for batch in batches]),
        step_ends=_stack([batch.step_ends for batch in batches]),
        metrics={
            name: sum(batch.metrics[name] * len(batch.totals) for batch in batches) / total
            for name in batches[0].metrics
        },
    )


def _stack(found: Sequence[Shaped[Tensor, "_ _"] | None]) -> Shaped[Tensor, "batch token"] | None:
    """The grids one below the other, filled up on the right; None where there are none."""
    grids = [grid for grid in found if grid is not None]
    if not grids:
        return None
    longest = max(grid.shape[1] for grid in grids)
    return torch.cat([pad(grid, (0, longest - grid.shape[1])) for grid in grids])
