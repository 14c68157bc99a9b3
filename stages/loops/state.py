"""State of a training loop: weights, optimizer moments, step number and the loop's own numbers.

Every random draw is a function of (seed, purpose, step, item). So the state of a loop is complete
with the trained weights, AdamW's moments, the number of the next step and a few further numbers,
and a run that resumes from it ends with the same bits as one that never stopped.

    state = State()
    for step in sft.train(model, rows, schedule, config, state):
        state.save(folder)                 # to resume: state = State.load(folder)
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from stages.loops.work import Step
from stages.models import sharding
from stages.optim import OptimConfig, make_adamw, step_optimizer
from stages.runtime import checkpoints

Metrics = dict[str, int | float]
NUMBERS, TENSORS = "numbers.json", "tensors.safetensors"


@dataclass(kw_only=True)
class State:
    """State of a training loop: a new one starts it, a loaded one continues it."""

    step: int = 0
    """Number of the next step, from 0."""
    numbers: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further state of the loop, such as adaptive coefficients and tokens spent."""
    start: str | None = None
    """Digest of the method and the initial weights, which `library` compares; None: a loop of the
    pipeline, whose inputs DVC compares."""
    is_updating: bool = False
    """Whether the present step has begun to change weights, which then belong to no state."""
    source: Path | None = None
    """Checkpoint that the state was read from; None: it is new."""
    _loaded: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    _trained: dict[str, tuple[nn.Module, torch.optim.Optimizer]] = field(
        default_factory=dict[str, tuple[nn.Module, torch.optim.Optimizer]]
    )

    def optimizer(self, name: str, model: nn.Module, config: OptimConfig) -> torch.optim.Optimizer:
        """AdamW of `model`, named `name` in a checkpoint; a loaded state restores both.

        A parameter that had no gradient yet has no moments.
        """
        optimizer = make_adamw(model, config)
        optimizer.register_step_pre_hook(lambda *_: self.begin_update())
        self._trained[name] = model, optimizer
        if not self.step:
            return optimizer
        keys = [key for key in self._loaded if key.startswith(f"{name}/")]
        saved = {key: self._loaded.pop(key) for key in keys}
        for key, parameter in _named(name, model).items():
            sharding.copy_into(parameter, saved[f"{key}/weight"])
            for moment in ("exp_avg", "exp_avg_sq"):
                if (value := saved.get(f"{key}/{moment}")) is not None:
                    place = torch.zeros_like(parameter, requires_grad=False)
                    sharding.copy_into(place, value)
                    optimizer.state[parameter][moment] = place
            if (count := saved.get(f"{key}/step")) is not None:
                # Fused AdamW has it on the device of the weights.
                optimizer.state[parameter]["step"] = count.to(parameter.device)
        return optimizer

    def begin_update(self) -> None:
        """Record that an optimizer is about to change weights."""
        self.is_updating = True

    def snapshot(self) -> Callable[[Path], None]:
        """Copy the state to the CPU's memory; returns a function that writes the copy to a folder.

        All ranks have to call it; rank 0 has the copy.
        """
        numbers = {"step": self.step, "numbers": self.numbers, "start": self.start}
        tensors: dict[str, Tensor] = {}
        for name, (model, optimizer) in self._trained.items():
            for key, parameter in _named(name, model).items():
                moments: Mapping[str, Tensor] = optimizer.state.get(parameter, {})
                for part, value in {"weight": parameter.data, **moments}.items():
                    whole = sharding.full_tensor(value)
                    if not sharding.get_rank():
                        tensors[f"{key}/{part}"] = whole.detach().to("cpu", copy=True).contiguous()

        def write(folder: Path) -> None:
            (folder / NUMBERS).write_text(json.dumps(numbers), encoding="utf-8")
            save_file(tensors, folder / TENSORS)

        return write

    def save(self, folder: Path | str) -> None:
        """Write a checkpoint, whole or not at all; call it between two steps."""
        content = self.snapshot()
        if not sharding.get_rank():
            checkpoints.write(Path(folder), self.step, content, {})

    @classmethod
    def load(cls, folder: Path | str) -> "State":
        """State of the last whole checkpoint of a folder; a new state if there is none."""
        checkpoint = checkpoints.find_last_checkpoint(Path(folder))
        return cls() if checkpoint is None else cls.read(checkpoint)

    @classmethod
    def read(cls, checkpoint: Path) -> "State":
        """State of a checkpoint that `snapshot` wrote."""
        numbers: dict[str, Any] = json.loads((checkpoint / NUMBERS).read_text(encoding="utf-8"))
        return cls(**numbers, source=checkpoint, _loaded=load_file(checkpoint / TENSORS))


def _named(name: str, model: nn.Module) -> dict[str, nn.Parameter]:
    """Trained parameters, by their names in a checkpoint."""
    return {
        f"{name}/{path}": parameter
        for path, parameter in model.named_parameters()
        if parameter.requires_grad
    }


def optimise(
    model: nn.Module,
    config: OptimConfig,
    schedule: Sequence[Sequence[int]],
    gradient: Callable[[int, Sequence[int]], Metrics],
    state: State | None,
) -> Iterator[Step]:
    """Optimizer step for each list of row numbers in `schedule`; `model` is changed in place.

    `gradient(index, rows)` adds the gradient of step `index` to the parameters' and returns the
    step's metrics.
    """
    state = state or State()
    model.train()
    optimizer = state.optimizer("model", model, config)
    for index in range(state.step, len(schedule)):
        metrics = gradient(index, schedule[index])
        metrics |= step_optimizer(optimizer, config, index, len(schedule))
        state.step = index + 1
        yield Step(index=index, metrics=metrics)
