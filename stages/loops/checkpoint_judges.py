"""What the policies along a run are compared with and scored by."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from stages.models import ensemble, start
from stages.models.aggregate import Aggregate
from stages.models.batch import Batch
from stages.models.config import ModelConfig
from stages.models.device import ComputeConfig
from stages.models.ensemble import Scores

NO_MODEL = "no_model"
Scorer = Callable[[Batch], Scores]


@dataclass(frozen=True, kw_only=True, slots=True)
class Judges:
    """All in eval mode."""

    reference: PreTrainedModel
    """What the divergence is measured from."""
    reward_model: Scorer | None
    ensemble: Scorer | None


def load(
    reference: str,
    reward_model: str,
    several: str,
    aggregate: Aggregate,
    model: ModelConfig,
    compute: ComputeConfig,
    device: torch.device,
) -> Judges:
    """The models that words name.

    Args:
        reference: the policy that the run started from.
        reward_model: a reward model, or `no_model`.
        several: an ensemble, or `no_model`.
        aggregate: how its members' scores become one.
        model: says what the base model is.
        compute: precision.
        device: where all of them go.
    """
    single, ensemble_of = scorers(reward_model, several, aggregate, compute, device)
    return Judges(
        reference=start.load(reference, model, compute, device).eval(),
        reward_model=single,
        ensemble=ensemble_of,
    )


def scorers(
    reward_model: str,
    several: str,
    aggregate: Aggregate,
    compute: ComputeConfig,
    device: torch.device,
) -> tuple[Scorer | None, Scorer | None]:
    """The reward model and the ensemble that words name; None of `no_model`."""
    single, ensemble_of = (
        None if word == NO_MODEL else ensemble.load(start.DATA / word, aggregate, compute, device)
        for word in (reward_model, several)
    )
    return single, ensemble_of
