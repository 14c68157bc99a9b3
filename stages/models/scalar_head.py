"""A transformer with one scalar output: the reward model, and the value model.

Both are an `AutoModelForSequenceClassification` with one label, so that other tools read them. The
reward of a completion is the head at its last real token; the value of a state is the head at the
position that predicts the next token.
"""

from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from stages.models.batch import Batch
from stages.models.device import ComputeConfig
from stages.models.policy import hidden_states, in_full, prepare, read_checkpoint, unflatten


def load(path: str | Path, compute: ComputeConfig, device: torch.device) -> PreTrainedModel:
    """The scalar-head model at `path`."""
    return _read(path, compute, device, new=frozenset())


def from_policy(
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
    model = _read(path, compute, device, new=frozenset({"score.weight"}))
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


def _read(
    path: str | Path, compute: ComputeConfig, device: torch.device, *, new: frozenset[str]
) -> PreTrainedModel:
    model = read_checkpoint(AutoModelForSequenceClassification, path, new=new, num_labels=1)
    return prepare(model, compute, device)


class SharedValue(nn.Module):
    """A value head on the policy's own hidden states: no second trunk in memory.

    Its loss also moves the policy's trunk. Only the head is a parameter of this module,
    so that each weight belongs to one optimizer.
    """

    def __init__(self, policy: PreTrainedModel) -> None:
        super().__init__()
        self.score = nn.Linear(policy.config.hidden_size, 1, bias=False, device=policy.device)
        nn.init.zeros_(self.score.weight)
        # A list hides the policy from `parameters()`.
        self._policy = [policy]

    @property
    def base_model(self) -> nn.Module:
        """The policy's body."""
        return self._policy[0].base_model


def rewards(model: nn.Module, batch: Batch) -> Float[Tensor, " batch"]:
    """The scalar at the last token of each completion, in float32."""
    return _scalars(model, hidden_states(model, batch)[batch.last_index])


def values(model: nn.Module, batch: Batch) -> Float[Tensor, "batch token"]:
    """The scalar before each token is emitted, in float32; 0 where `batch.mask` is False."""
    return unflatten(_scalars(model, hidden_states(model, batch)[batch.predict_index]), batch)


def _scalars(
    model: nn.Module, hidden: Float[Tensor, "position hidden"]
) -> Float[Tensor, " position"]:
    # Trained whole under LoRA, the head is wrapped, and called alike.
    return in_full(model.score, hidden).squeeze(-1)  # pyright: ignore[reportArgumentType]
