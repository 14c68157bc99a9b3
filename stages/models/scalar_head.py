"""Transformers with one scalar output: the value model, and reward models, alone or as an ensemble.

Each is an `AutoModelForSequenceClassification` with one label, so that other tools read it. The
reward of a completion is the head at its last real token; the value of a state is the head at the
position that predicts the next token. A folder with a model in it is a reward model; one with
numbered folders, a model in each, is an ensemble, which scores whatever one model can score.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from stages.algorithms.ensemble import std
from stages.models import sharding
from stages.models.batch import Batch, Group, model_batches
from stages.models.device import COMPUTE, ComputeConfig
from stages.models.forward_check import compute_hidden_states
from stages.models.policy import apply_head, load_checkpoint, prepare_model, unflatten

CONFIG = "config.json"
Rewards = Float[Tensor, " batch"]


def load_scalar_model(
    path: str | Path,
    compute: ComputeConfig,
    device: torch.device,
    *,
    new: frozenset[str] = frozenset(),
    trained: bool = True,
) -> PreTrainedModel:
    """The scalar-head model at `path`, where it has all weights but the `new` ones."""
    model = load_checkpoint(AutoModelForSequenceClassification, path, new=new, num_labels=1)
    return prepare_model(model, compute, device, trained=trained)


def init_scalar_model(
    path: str | Path,
    pad_id: int,
    compute: ComputeConfig,
    device: torch.device,
    *,
    head_seed: int | None = None,
) -> PreTrainedModel:
    """The body of the policy at `path` (a folder or a hub id) under a new head.

    With a `head_seed` the head is drawn from N(0, 1 / (hidden + 1)), as in Stiennon et al.,
    "Learning to summarize from human feedback" (2020), https://arxiv.org/abs/2009.01325, appendix
    B: the members of an ensemble must differ. Else it is of zeros: every completion starts with the
    same reward and every state with the same value. `pad_id` is kept in the model's configuration,
    where other tools look for it.
    """
    model = load_scalar_model(path, compute, device, new=frozenset({"score.weight"}))
    head = model.get_parameter("score.weight")
    weights = torch.zeros(head.shape)
    if head_seed is not None:
        # Drawn on the CPU, so that every device starts from the same one.
        generator = torch.Generator().manual_seed(head_seed)
        weights.normal_(std=(head.shape[1] + 1) ** -0.5, generator=generator)
    with torch.no_grad():
        head.copy_(weights)
    model.config.pad_token_id = pad_id
    return model


class ScalarHead(nn.Module):
    """A reward or value model that reads batches of completions."""

    def __init__(
        self, model: PreTrainedModel, compute: ComputeConfig = COMPUTE, pad_id: int = 0
    ) -> None:
        """`model` is of `load_scalar_model` or `init_scalar_model`; `pad_id` fills the right of a
        row."""
        super().__init__()
        self.model, self.compute, self.pad_id = model, compute, pad_id

    @property
    def base_model(self) -> nn.Module:
        """All but the head."""
        return self.model.base_model

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.model.device

    def forward(self, batch: Batch, *, each_token: bool = False) -> Float[Tensor, "batch ..."]:
        """The scalar at the last token of each completion, in float32: its reward.

        With `each_token` that before each token is emitted, the value; 0 where `batch.mask` is
        False.
        """
        places = batch.predict_index if each_token else batch.last_index
        hidden = compute_hidden_states(self.model, batch)[places]
        # Trained whole under LoRA, the head is wrapped, and called alike.
        found = apply_head(self.model.score, hidden).squeeze(-1)  # pyright: ignore[reportArgumentType]
        if each_token:
            return unflatten(found, batch)
        return sharding.gather_completions(found, [1] * len(batch.indices), batch.own)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """What completions are worth, and how sure that is."""

    values: Rewards
    disagreement: Rewards
    """The standard deviation of the members' scores; 0 where there is one member."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ensemble:
    """Reward models of one kind, in the order of their numbers; one alone is an ensemble too."""

    members: Sequence[ScalarHead]
    aggregate: Callable[..., Rewards]
    """Makes one score of `scores`, [member, batch]."""

    @torch.no_grad()
    def __call__(self, batch: Batch) -> Scores:
        """Scores of a batch's completions: the members read it one after another, in eval mode."""
        found = torch.stack([model.eval()(batch) for model in self.members])
        return Scores(values=self.aggregate(scores=found), disagreement=std(found))


def load_ensemble(
    path: Path, aggregate: Callable[..., Rewards], compute: ComputeConfig, device: torch.device
) -> Ensemble:
    """The reward model, outcome model or ensemble at `path`; all members stay on the device."""
    models = [
        load_scalar_model(folder, compute, device, trained=False)
        for folder in find_member_folders(path)
    ]
    members = [ScalarHead(model, compute, model.config.pad_token_id or 0) for model in models]
    return Ensemble(members=members, aggregate=aggregate)


def find_member_folders(path: Path) -> list[Path]:
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
    path: Path, aggregate: Callable[..., Rewards], compute: ComputeConfig, device: torch.device
) -> Callable[[Sequence[Group]], Scores]:
    """`scores` by the models at `path`."""
    return partial(scores, load_ensemble(path, aggregate, compute, device))


def scores(models: Ensemble, groups: Sequence[Group]) -> Scores:
    """The scores of all completions of `groups`, by their numbers; on the CPU."""
    places = {number: i for i, number in enumerate(sorted(n for g in groups for n in g.indices))}
    values, disagreement = torch.zeros(2, len(places))
    for batch in model_batches(models.members[0], groups):
        found = models(batch)
        own = [places[number] for number in batch.indices]
        values[own] = found.values.cpu()
        disagreement[own] = found.disagreement.cpu()
    return Scores(values=values, disagreement=disagreement)
