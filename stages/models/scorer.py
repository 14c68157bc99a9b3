"""What scores completions by a head of one scalar: reward models, ensembles, outcome models."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from stages.models import ensemble, model_tokenizer
from stages.models.aggregate import Aggregate
from stages.models.batch import Group, micro_batches
from stages.models.device import ComputeConfig
from stages.models.ensemble import Ensemble, Scores

Score = Callable[[Sequence[Group]], Scores]
"""Completions with their prompts -> a score of each, in turn; on the CPU."""


def load(path: Path, aggregate: Aggregate, compute: ComputeConfig, device: torch.device) -> Score:
    """What completions are worth to the models at `path`, in eval mode.

    Args:
        path: the folder of a reward model, of an ensemble of them or of an outcome model.
        aggregate: how an ensemble's scores become one.
        compute: precision.
        device: where it computes.
    """
    models = ensemble.load(path, aggregate, compute, device)
    pad_id = model_tokenizer.pad_id(model_tokenizer.load(ensemble.folders(path)[0]))
    return lambda groups: _in_batches(models, groups, compute, pad_id)


@torch.no_grad()
def _in_batches(
    models: Ensemble, groups: Sequence[Group], compute: ComputeConfig, pad_id: int
) -> Scores:
    """The scores of all completions of `groups`, whatever numbers they have."""
    places = {index: place for place, index in enumerate(i for g in groups for i in g.indices)}
    values, disagreement = torch.zeros(2, len(places))
    for batch in micro_batches(groups, compute, pad_id, models.device):
        found = models(batch)
        own = [places[index] for index in batch.indices]
        values[own] = found.values.cpu()
        disagreement[own] = found.disagreement.cpu()
    return Scores(values=values, disagreement=disagreement)
