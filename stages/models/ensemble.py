"""One reward model or several that score as one, and the scores of completions by them.

A folder with a model in it is a reward model; one with numbered folders, a model in each, is an
ensemble. Everything that is scored by the one can be scored by the other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from stages.algorithms.ensemble import std
from stages.models import model_tokenizer, scalar_head
from stages.models.aggregate import Aggregate
from stages.models.batch import Batch, Group, micro_batches
from stages.models.device import ComputeConfig

CONFIG = "config.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """What completions are worth, and how sure that is."""

    values: Float[Tensor, " batch"]
    disagreement: Float[Tensor, " batch"]
    """The standard deviation of the members' scores; 0 where there is one member."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ensemble:
    """Reward models of one kind, in the order of their numbers; one alone is an ensemble too."""

    members: Sequence[PreTrainedModel]
    aggregate: Aggregate

    @property
    def device(self) -> torch.device:
        """Where batches for it go."""
        return self.members[0].device

    @torch.no_grad()
    def __call__(self, batch: Batch) -> Scores:
        """Scores of a batch's completions: the members read it one after another, in eval mode."""
        found = torch.stack([scalar_head.rewards(model.eval(), batch) for model in self.members])
        return Scores(values=self.aggregate(found), disagreement=std(found))


def load(
    path: Path, aggregate: Aggregate, compute: ComputeConfig, device: torch.device
) -> Ensemble:
    """The reward model or the ensemble at `path`; all members stay on the device.

    Raises:
        ValueError: it is neither.
    """
    members = [scalar_head.load(folder, compute, device) for folder in folders(path)]
    return Ensemble(members=members, aggregate=aggregate)


def folders(path: Path) -> list[Path]:
    """Where the models of a reward model or of an ensemble are, by number: 2 before 10.

    Raises:
        ValueError: there is none, or something else is beside them.
    """
    if (path / CONFIG).is_file():
        return [path]
    found = sorted(path.iterdir()) if path.is_dir() else []
    numbers = {folder.name: folder for folder in found if (folder / CONFIG).is_file()}
    if not found or len(numbers) != len(found) or not all(name.isdecimal() for name in numbers):
        raise ValueError(
            f"expected in {path} a model ({CONFIG}) or folders named 0, 1, 2, ... with a model in "
            f"each, found {[item.name for item in found] or 'nothing'}. Name the "
            f"folder of a reward that reward_preference or reward_outcome wrote."
        )
    return [numbers[name] for name in sorted(numbers, key=int)]


Scorer = Callable[[Sequence[Group]], Scores]
"""Completions with their prompts -> a score of each, in turn; on the CPU."""


def load_scorer(
    path: Path, aggregate: Aggregate, compute: ComputeConfig, device: torch.device
) -> Scorer:
    """What completions are worth to the models at `path`, in eval mode.

    Args:
        path: the folder of a reward model, of an ensemble of them or of an outcome model.
        aggregate: how an ensemble's scores become one.
        compute: precision.
        device: where it computes.
    """
    models = load(path, aggregate, compute, device)
    pad_id = model_tokenizer.pad_id(model_tokenizer.load(folders(path)[0]))
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
