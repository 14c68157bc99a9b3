"""TRL's own training loop, with what it computed: losses, gradients, weights, batches."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tiny_checkpoints import CPU, PAD, checkpoint, compute, gradients, load
from transformers import PreTrainedModel, TrainerCallback
from trl_settings import PLAIN

from stages.models import scalar_head

Weights = dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class Computed:
    """A loss and the gradient of every parameter."""

    loss: float
    gradients: Weights


@dataclass(kw_only=True, slots=True)
class ReferenceStep:
    """One optimizer step as the trainer took it."""

    weights: Weights
    """Before the step: what the loss and the gradients belong to."""
    computed: Computed
    batches: list[dict[str, Any]] = field(default_factory=list)
    """What `compute_loss` was given, one for each micro-batch."""


def listen(trainer: Any, name: str, after: Callable[[tuple, Any], None]) -> None:
    """Have `after` told the arguments and the result of every call of a method."""
    original = getattr(trainer, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        after(args, result)
        return result

    setattr(trainer, name, wrapped)


class _Recorder(TrainerCallback):
    def __init__(self, trainer: Any) -> None:
        self.steps: list[ReferenceStep] = []
        self.losses: list[float] = []
        self.batches: list[dict[str, Any]] = []
        listen(trainer, "training_step", self._after_training_step)
        listen(trainer, "compute_loss", self._after_compute_loss)
        trainer.add_callback(self)

    def _after_training_step(self, args: tuple, result: torch.Tensor) -> None:
        self.losses.append(result.item())

    def _after_compute_loss(self, args: tuple, result: torch.Tensor) -> None:
        self.batches.append(dict(args[1]))

    def on_pre_optimizer_step(self, args, state, control, *, model: PreTrainedModel, **kwargs):
        computed = Computed(loss=sum(self.losses), gradients=gradients(model))
        weights = {name: value.clone() for name, value in model.state_dict().items()}
        self.steps.append(ReferenceStep(weights=weights, computed=computed, batches=self.batches))
        self.losses, self.batches = [], []


def run(trainer: Any) -> list[ReferenceStep]:
    """Every optimizer step of `trainer.train()`."""
    recorder = _Recorder(trainer)
    trainer.train()
    return recorder.steps


def model(seed: int = 0, family: str = "llama") -> PreTrainedModel:
    """A tiny checkpoint with all dropout off; only its TRL trainer may change it."""
    return load(family, seed)


def arguments(folder: Path, **changes: Any) -> dict[str, Any]:
    return PLAIN | {"max_grad_norm": 0.0, "output_dir": str(folder)} | changes


def scalar_model(seed: int) -> PreTrainedModel:
    """With a head that is not zero, or the body would get no gradient."""
    result = scalar_head.init_scalar_model(checkpoint("llama", seed), PAD, compute(), CPU)
    generator = torch.Generator().manual_seed(seed)
    weight = result.get_parameter("score.weight")
    weight.data = 0.3 * torch.randn(weight.shape, generator=generator)
    return result
