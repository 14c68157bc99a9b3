"""One reward model or several that score as one, and the scores of completions by them.

A folder with a model in it is a reward model; one with numbered folders, a model in each, is an
ensemble. Everything that is scored by the one can be scored by the other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from stages.algorithms.ensemble import std
from stages.models import model_tokenizer, scalar_head
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
    aggregate: Callable[..., Float[Tensor, " batch"]]
    """Makes one score of `scores`, [member, batch]."""

    @property
    def device(self) -> torch.device:
        """Where batches for it go."""
        return self.members[0].device

    @torch.no_grad()
    def __call__(self, batch: Batch) -> Scores:
        """Scores of a batch's completions: the members read it one after another, in eval mode."""
        found = torch.stack([scalar_head.rewards(model.eval(), batch) for model in self.members])
        return Scores(values=self.aggregate(scores=found), disagreement=std(found))


def load(
    path: Path,
    aggregate: Callable[..., Float[Tensor, " batch"]],
    compute: ComputeConfig,
    device: torch.device,
) -> Ensemble:
    """The reward model, outcome model or ensemble at `path`; all members stay on the device."""
    members = [scalar_head.load(folder, compute, device) for folder in folders(path)]
    return Ensemble(members=members, aggregate=aggregate)


def folders(path: Path) -> list[Path]:
    """Where the models of a reward model or of an ensemble are, by number: 2 before 10."""
    if (path / CONFIG).is_file():
        return [path]
    found = sorted(path.iterdir()) if path.is_dir() else []
    numbers = [one for one in found if one.name.isdecimal() and (one / CONFIG).is_file()]
    if not found or len(numbers) != len(found):
        raise ValueError(
            f"expected in {path} a model ({CONFIG}) or folders named 0, 1, 2, ... with a model in "
            f"each, found {[item.name for item in found] or 'nothing'}. Name the "
            f"folder of a reward that reward_preference or reward_outcome wrote."
        )
    return sorted(numbers, key=lambda one: int(one.name))


def load_scorer(
    path: Path,
    aggregate: Callable[..., Float[Tensor, " batch"]],
    compute: ComputeConfig,
    device: torch.device,
) -> Callable[[Sequence[Group]], Scores]:
    """`scores` by the models at `path`, which brings its tokenizer."""
    pad_id = model_tokenizer.pad_id(model_tokenizer.load(folders(path)[0]))
    return partial(scores, load(path, aggregate, compute, device), compute=compute, pad_id=pad_id)


def scores(
    models: Ensemble, groups: Sequence[Group], compute: ComputeConfig, pad_id: int
) -> Scores:
    """The scores of all completions of `groups`, by their numbers; on the CPU."""
    places = {number: i for i, number in enumerate(sorted(n for g in groups for n in g.indices))}
    values, disagreement = torch.zeros(2, len(places))
    for batch in micro_batches(groups, compute, pad_id, models.device):
        found = models(batch)
        own = [places[number] for number in batch.indices]
        values[own] = found.values.cpu()
        disagreement[own] = found.disagreement.cpu()
    return Scores(values=values, disagreement=disagreement)
