"""Transformers with a scalar output: the value model, reward models, and ensembles of these.

Each is an `AutoModelForSequenceClassification` with one label, so that other tools can read it. The
reward of a completion is the head at its last token; the value of a state is the head at the
position that predicts the next token. A folder with a model is a reward model; a folder with
numbered folders, a model in each, is an ensemble, which can replace a single model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from stages.algorithms.ensemble import std
from stages.models import sharding
from stages.models.batch import Batch, Group, model_batches
from stages.models.device import COMPUTE, ComputeConfig
from stages.models.forward_check import compute_hidden_states
from stages.models.policy import apply_head, load_pretrained, prepare_model, unflatten

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
    """The scalar-head model at `path`; only the weights named in `new` may be missing."""
    model = load_pretrained(AutoModelForSequenceClassification, path, new=new, num_labels=1)
    return prepare_model(model, compute, device, trained=trained)


def init_scalar_model(
    path: str | Path,
    pad_id: int,
    compute: ComputeConfig,
    device: torch.device,
    *,
    head_seed: int | None = None,
) -> PreTrainedModel:
    """Transformer of the policy at `path` (a folder or a hub id) with a new head.

    With a `head_seed` the head is drawn from N(0, 1 / (hidden + 1)), as in Stiennon et al.,
    "Learning to summarize from human feedback" (2020), https://arxiv.org/abs/2009.01325, appendix
    B: the members of an ensemble must differ. Without one it is zero: every completion starts with
    the same reward and every state with the same value. `pad_id` goes into the model's
    configuration, where other tools look for it; a token added by `set_separate_pad` gets an
    embedding.
    """
    model = load_scalar_model(path, compute, device, new=frozenset({"score.weight"}))
    head = model.get_parameter("score.weight")
    weights = torch.zeros(head.shape)
    if head_seed is not None:
        # Drawn on the CPU, so that every device starts from the same head.
        generator = torch.Generator().manual_seed(head_seed)
        weights.normal_(std=(head.shape[1] + 1) ** -0.5, generator=generator)
    with torch.no_grad():
        head.copy_(weights)
    num_rows = len(model.get_input_embeddings().weight)  # pyright: ignore[reportArgumentType]
    if pad_id >= num_rows:
        embeddings: Any = model.resize_token_embeddings(pad_id + 1, mean_resizing=False)
        torch.nn.init.zeros_(embeddings.weight[num_rows:].detach())
    model.config.pad_token_id = pad_id
    return model


class ScalarHead(nn.Module):
    """Reward or value model that scores batches of completions."""

    def __init__(
        self, model: PreTrainedModel, compute: ComputeConfig = COMPUTE, pad_id: int = 0
    ) -> None:
        """`model` is from `load_scalar_model` or `init_scalar_model`."""
        super().__init__()
        self.model, self.compute, self.pad_id = model, compute, pad_id

    @property
    def base_model(self) -> nn.Module:
        """Transformer without the head."""
        return self.model.base_model

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.model.device

    def forward(self, batch: Batch, *, each_token: bool = False) -> Float[Tensor, "batch ..."]:
        """Reward of each completion, in float32: the scalar at its last token.

        With `each_token`, the values: the scalar at the position before each token; 0 where
        `batch.mask` is False.
        """
        positions = batch.predict_index if each_token else batch.last_index
        hidden = compute_hidden_states(self.model, batch)[positions]
        # Under LoRA the head is trained in full: peft wraps it, and it is called as before.
        scores = apply_head(self.model.score, hidden).squeeze(-1)  # pyright: ignore[reportArgumentType]
        if each_token:
            return unflatten(scores, batch)
        return sharding.gather_completions(scores, [1] * len(batch.indices), batch.local)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """Scores of completions by an ensemble, and the disagreement of its members."""

    values: Rewards
    disagreement: Rewards
    """Standard deviation of the members' scores; 0 for a single member."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ensemble:
    """Reward models of one kind, in the order of their numbers; there may be just one."""

    members: Sequence[ScalarHead]
    aggregate: Callable[..., Rewards]
    """Aggregation of the members' `scores`, [member, batch], to a score of each completion."""

    @torch.no_grad()
    def __call__(self, batch: Batch) -> Scores:
        """Scores of a batch's completions; the members run one after another, in eval mode."""
        scores = torch.stack([model.eval()(batch) for model in self.members])
        return Scores(values=self.aggregate(scores=scores), disagreement=std(scores))

    def score_groups(self, groups: Sequence[Group]) -> Scores:
        """Scores of all completions of `groups`, in the order of their indices; on the CPU."""
        indices = sorted(index for group in groups for index in group.indices)
        places = {index: place for place, index in enumerate(indices)}
        values, disagreement = torch.zeros(2, len(places))
        for batch in model_batches(self.members[0], groups):
            scores = self(batch)
            batch_places = [places[index] for index in batch.indices]
            values[batch_places] = scores.values.cpu()
            disagreement[batch_places] = scores.disagreement.cpu()
        return Scores(values=values, disagreement=disagreement)


def load_ensemble(
    path: Path, aggregate: Callable[..., Rewards], compute: ComputeConfig, device: torch.device
) -> Ensemble:
    """The reward model, outcome model or ensemble at `path`; all members stay on the device."""
    folders = find_member_folders(path)
    models = [load_scalar_model(folder, compute, device, trained=False) for folder in folders]
    members = [ScalarHead(model, compute, model.config.pad_token_id or 0) for model in models]
    return Ensemble(members=members, aggregate=aggregate)


def find_member_folders(path: Path) -> list[Path]:
    """Model folders of a reward model or an ensemble, in numeric order (2 before 10)."""
    if (path / CONFIG).is_file():
        return [path]
    folders = sorted(path.iterdir()) if path.is_dir() else []
    is_member = [item.name.isdecimal() and (item / CONFIG).is_file() for item in folders]
    if not folders or not all(is_member):
        raise ValueError(
            f"expected in {path} a model ({CONFIG}) or folders named 0, 1, 2, ... with a model in "
            f"each, found {[item.name for item in folders] or 'nothing'}. Name the "
            f"folder of a reward that reward_preference or reward_outcome wrote."
        )
    return sorted(folders, key=lambda folder: int(folder.name))
