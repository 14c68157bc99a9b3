"""TRL's own training loop, with what it computed: losses, gradients, weights, batches.

Also a tokenizer of one token a character, so that text for TRL is token ids of ours.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from parity.rows import Computed, Weights
from tiny_checkpoints import CPU, EOS, PAD, VOCAB, checkpoint, compute, gradients, load
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedModel, PreTrainedTokenizerFast, TrainerCallback
from trl_settings import PLAIN

from stages.models import scalar_head

LETTERS = "abcdefghijklmnopqrstuvwxyzABCD"
assert len(LETTERS) == VOCAB - 2


def tokenizer(padding: int = PAD) -> PreTrainedTokenizerFast:
    """End of sequence is 1, letters from 2: the vocabulary of `tiny_checkpoints`."""
    letters = {letter: i for i, letter in enumerate(LETTERS, start=2)}
    vocab = {"<pad>": padding, "<eos>": EOS} | letters
    inner = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    inner.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>")


def text(token_ids: Sequence[int]) -> str:
    return "".join(["<pad>", "<eos>", *LETTERS][token] for token in token_ids)


@dataclass(kw_only=True, slots=True)
class ReferenceStep:
    """One optimizer step as the trainer took it."""

    weights: Weights
    """Before the step: what the loss and the gradients belong to."""
    computed: Computed
    batches: list[dict[str, Any]] = field(default_factory=list)
    """Inputs of `compute_loss`, one for each micro-batch."""


def listen(trainer: Any, name: str, after: Callable[[tuple, Any], None]) -> None:
    """Call `after` with the arguments and the result of every call of a method."""
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
        listen(trainer, "training_step", lambda _, result: self.losses.append(result.item()))
        listen(trainer, "compute_loss", lambda args, _: self.batches.append(dict(args[1])))
        trainer.add_callback(self)

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


def arguments(folder: Path, **changes: Any) -> dict[str, Any]:
    return PLAIN | {"max_grad_norm": 0.0, "output_dir": str(folder)} | changes


def scalar_model(seed: int) -> PreTrainedModel:
    """With a head that is not zero, or the body would get no gradient."""
    result = scalar_head.init_scalar_model(checkpoint("llama", seed), PAD, compute(), CPU)
    generator = torch.Generator().manual_seed(seed)
    weight = result.get_parameter("score.weight")
    weight.data = 0.3 * torch.randn(weight.shape, generator=generator)
    return result


def trl_trainer(
    name: str, folder: Path, rows: Sequence[dict[str, Any]], model: PreTrainedModel,
    settings: dict[str, Any], **more: Any,
) -> Any:  # fmt: skip
    """`<name>Trainer` of trl, or of trl.experimental where `name` is of a module there."""
    import importlib

    from datasets import Dataset

    package, _, kind = name.rpartition(".")
    module = importlib.import_module(f"trl.experimental.{package}" if package else "trl")
    return getattr(module, f"{kind}Trainer")(
        model=model, args=getattr(module, f"{kind}Config")(**arguments(folder, **settings)),
        train_dataset=Dataset.from_list(list(rows)), processing_class=tokenizer(), **more,
    )  # fmt: skip


def frozen_model(seed: int) -> dict[str, PreTrainedModel]:
    return {"ref_model": load("llama", seed)}
